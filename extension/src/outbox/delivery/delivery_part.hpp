// One partition's part of a batch: due retries, and new messages of the log.
#pragma once
#include "core/outbox/snapshot_window.hpp"

#include "src/common/sent_values.hpp"
#include "src/outbox/delivery/delivery_retry.hpp"
#include "src/outbox/subscription/position.hpp"

namespace stacksaga {

// A position moves over messages that the subscription does not want when this much of the log lies
// behind it, or more ticks than are read at once. Until then reading them again costs less than
// writing.
inline constexpr int64 idle_distance = 2000;

/// The message ids that a batch holds: each once, so that an answer for an id is for one message.
class MessageIds {
public:
    /// For at most `most` ids; they are kept in the memory context of the first one.
    explicit MessageIds(size_t most) : most_(most) {}

    /// False: it is there already.
    bool add(const pg_uuid_t &id);

private:
    struct Place {
        pg_uuid_t id;
        bool is_taken;
    };
    size_t most_;
    std::span<Place> places_{}; ///< a power of two, at least twice the number of ids
};
static_assert(std::is_trivially_destructible_v<MessageIds>);

/// One partition's part of a batch.
struct Part {
    Position position;
    core::LogPosition end;
    std::span<Message> retries;
    std::span<Message> log;
    bool more;
    int32 copied = 0;      ///< messages of the log that were copied out
    bool has_lone = false; ///< the next batch that the partition is in holds one message alone
};
static_assert(std::is_trivially_destructible_v<Part>);

/// One part of a partition, whose position is locked. `whole` is what was read of its share; it
/// holds one message of the log at least, if there is one, to know which retries come before the
/// log. `ids` and `bytes` are those of what the batch holds already. Inside with_spi.
Part read_part(const Subscription &s, Position position, const LogPart &whole, int32 room,
               MessageIds &ids, BatchBytes &bytes, TimestampTz now);

} // namespace stacksaga
