// What a session remembers of a queue that it claims from: where to begin to read, whose turn it
// is. Only for speed and fairness: which steps may be claimed never depends on it.
#pragma once
#include "pg/pg.hpp"
#include "src/common/limits.hpp"
#include "src/common/probe.hpp"
#include "src/common/spread.hpp"

namespace stacksaga {

/// Stepping over a dead entry of the index takes 0.2 us: so long a probe has met a thousand.
inline constexpr int64 cheap_probe_us = 300;

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

struct QueueMemory {
    uint64 key = 0;
    ProbeMemory usual{cheap_probe_us};  ///< of steps of the usual rank and of no group
    ProbeMemory ranks{cheap_probe_us};  ///< of the others
    ProbeMemory leases{cheap_probe_us}; ///< of leases that ran out
    int64 settled_at = 0;               ///< when these were looked for, by the steady clock
    Spread spread{};
    core::LowerRankTurn turn{};
    std::array<GroupCursor, core::lowest_rank + 1> cursors{}; ///< by rank
};

/// A queue that falls on the place of another one takes it.
QueueMemory &memory_of(int32 ring_id, std::string_view queue);

} // namespace stacksaga
