// What a subscription holds for a service that waits: the free partitions in which a batch may find
// something, and the instant at which there may be more.
#pragma once
#include "core/outbox/partition.hpp"
#include "core/outbox/snapshot_window.hpp"

#include "src/outbox/subscription/consumer_partitions.hpp"
#include "src/outbox/subscription/position.hpp"

namespace stacksaga {

struct Receivable {
    size_t due = 0;          ///< free partitions with something that the consumer may get
    bool has_others = false; ///< there are some that it may not
    TimestampTz next =
        DT_NOEND; ///< when a retry, a lease or a pause ends, if nothing is written before
    bool is_being_taken = false;  ///< another session works in a partition, and may roll back
    bool is_behind_ticks = false; ///< another session is making a tick, or a position has moved on
    bool is_prepared = false;     ///< a prepared transaction may have published
};

/// What one wait remembers of its looks: the log behind a position does not change up to the last
/// tick, so no look reads again what the subscription does not want of it.
class ReadAhead {
public:
    /// From where on the log of a partition is to be read.
    core::LogPosition from(const Position &p) const {
        const Read &read = reads_[static_cast<size_t>(p.partition)];
        return read.at == p.at ? read.to : p.at;
    }
    /// Behind its position there is nothing for it up to `to`.
    void note(const Position &p, core::LogPosition to) {
        reads_[static_cast<size_t>(p.partition)] = {.at = p.at, .to = to};
    }
    void forget() { reads_ = {}; }

private:
    struct Read {
        core::LogPosition at, to;
    };
    std::array<Read, core::partitions_max> reads_{};
};

/// Makes a tick where one is due, and looks until `enough` partitions are found. No consumer: for
/// any. Locks and writes nothing else. Inside with_spi.
Receivable look_for_messages(const Subscription &s, std::optional<std::string_view> consumer,
                             size_t enough, ReadAhead &ahead);

} // namespace stacksaga
