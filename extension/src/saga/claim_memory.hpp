// What a session remembers of a queue that it claims from: where to begin to read, whose turn it
// is. Only for speed and fairness: which steps may be claimed never depends on it.
#pragma once
#include "pg/pg.hpp"
#include "src/common/limits.hpp"
#include "src/common/probe.hpp"

namespace stacksaga {

/// A claim takes some times as long: so long a probe steps over forty pages of dead entries.
inline constexpr int64 cheap_probe_us = 20;

/// The group that had its turn last.
struct GroupCursor {
    bool is_set = false; ///< false: this session has not claimed from groups yet
    uint8 bytes = 0;
    std::array<char, key_bytes_max> key{};

    std::string_view group() const { return {key.data(), bytes}; }
    void set(std::string_view group) {
        is_set = true;
        bytes = static_cast<uint8>(std::min(group.size(), key.size()));
        std::copy_n(group.begin(), bytes, key.begin());
    }
};

/// Where to begin to read one of a queue's indexes; see probe.hpp. What a full probe of one session
/// found dearly serves all of them.
class QueueProbe {
public:
    constexpr explicit QueueProbe(uint64 key) : key_(key) {}

    /// The instant from which to look for what is due at `now`. The probe follows at once.
    TimestampTz begin(TimestampTz now);
    /// It has met a row that is there: what it took until the first one was for dead entries.
    void note_row(TimestampTz now);
    /// The probe has returned. What it left begins at this instant, which is `now` when it left
    /// nothing.
    void end(TimestampTz now, TimestampTz first_left);
    /// What was committed by then, it has seen. Later commits of long transactions it may have
    /// missed.
    TimestampTz whole_at() const { return memory_.full_at(); }

private:
    uint64 key_ = 0;
    // Claims that begin from the beginning as often as their cost allows need no longer interval.
    ProbeMemory memory_{cheap_probe_us, pg::steady_now, 0};
    int64 processor_at_ = 0;
    bool is_searching_ = false; ///< no row was met yet
    bool is_timed_ = false;     ///< by the processor's time
    bool is_dear_ = false;      ///< by that time
    bool is_announced_ = false; ///< others believe the last full probe until this one returns
};

struct QueueMemory {
    constexpr QueueMemory() : QueueMemory(0, {}) {}
    constexpr QueueMemory(uint64 of_key, core::LowerRankTurn of_turn)
        : key(of_key), usual(of_key + 1), ranks(of_key + 2), leases(of_key + 3),
          settled_key(of_key + 4), turn(of_turn) {}

    uint64 key;
    QueueProbe usual;     ///< of steps of the usual rank and of no group
    QueueProbe ranks;     ///< of the others
    QueueProbe leases;    ///< of leases that ran out
    uint64 settled_key;   ///< of what sessions share of the last look for these
    int64 settled_at = 0; ///< when this session looked, by the steady clock
    core::SearchStart start{};
    core::LastClaim last_claim{};
    core::LowerRankTurn turn{};
    std::array<GroupCursor, core::lowest_rank + 1> cursors{}; ///< by rank
};

/// A queue that falls on the place of another one takes it.
QueueMemory &memory_of(int32 ring_id, std::string_view queue);

} // namespace stacksaga
