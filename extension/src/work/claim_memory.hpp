// What a session remembers of a queue that it claims from: where to begin to read, whose turn it
// is. Only for speed and fairness: which steps may be claimed never depends on it.
#pragma once
#include "core/queue/claim_order.hpp"
#include "core/ring/murmur3.hpp"
#include "core/work/search_start.hpp"

#include "pg/random.hpp"
#include "src/common/limits.hpp"
#include "src/common/probe.hpp"

namespace stacksaga {

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
    // A claim takes some times 20 µs: so long a probe steps over forty pages of dead entries. What
    // begins from the beginning as often as its cost allows needs no longer interval.
    static constexpr ProbeMemory probe{20, pg::steady_now, 0};

    constexpr QueueMemory() : QueueMemory(0, {}) {}
    constexpr QueueMemory(uint64 of_key, core::LowerRankTurn of_turn)
        : key(of_key), usual(of_key + 1, probe), ranks(of_key + 2, probe),
          leases(of_key + 3, probe), settled_key(of_key + 4), turn(of_turn) {}

    uint64 key;
    SessionProbe usual;   ///< of steps of the usual rank and of no group
    SessionProbe ranks;   ///< of the others
    SessionProbe leases;  ///< of leases that ran out
    uint64 settled_key;   ///< of what sessions share of the last look for these
    int64 settled_at = 0; ///< when this session looked, by the steady clock
    core::SearchStart start{};
    core::LastClaim last_claim{};
    core::LowerRankTurn turn{};
    std::array<GroupCursor, core::lowest_rank + 1> cursors{}; ///< by rank
};

/// A queue that falls on the place of another one takes it.
inline QueueMemory &memory_of(int32 ring_id, std::string_view queue) {
    static constinit std::array<QueueMemory, 16> places{};
    const uint64 key = core::murmur3_x64_128(queue, static_cast<uint32>(ring_id)).h1;
    QueueMemory &place = places[key % places.size()];
    if (place.key != key)
        place = QueueMemory(key, core::LowerRankTurn(pg::random_fraction()));
    return place;
}

} // namespace stacksaga
