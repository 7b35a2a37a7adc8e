#include "src/work/pending_search.hpp"

#include "core/queue/claim_order.hpp"
#include "core/ring/murmur3.hpp"
#include "core/work/commit_horizon.hpp"

#include "pg/clock.hpp"
#include "pg/random.hpp"
#include "src/common/probe.hpp"

namespace stacksaga {

namespace {

// A search of slots that have something due each takes less. One that begins at an instant seeks
// each slot, for about half of that.
constexpr int64 cheap_slot_us = 4;

// Between the start of a saga and its commit. Where sagas are done as they come, a search reads
// what was done in this time.
constexpr int64 commit_lag_us = USECS_PER_SEC;

/// From where a session searches, by rank.
using Probes = std::array<SessionProbe, core::lowest_rank + 1>;

/// Of the ring, which is the only one that is remembered. By the processor's time, since most of
/// the other passes while another session has the processor.
Probes &probes_of(const Ring &ring) {
    static constinit Probes probes{};
    static constinit int32 ring_id = 0;
    if (ring_id != ring.ring_id) {
        ring_id = ring.ring_id;
        // No queue's, since no ring has a negative number.
        const uint64 key =
            core::murmur3_x64_128("run_pending", static_cast<uint32>(~ring.ring_id)).h1;
        const ProbeMemory memory(cheap_slot_us * ring.slots, pg::processor_now, 0, commit_lag_us);
        for (size_t rank = 0; rank < probes.size(); ++rank)
            probes[rank] = SessionProbe(key + rank, memory);
    }
    return probes;
}

/// For slot_search.hpp: what is due longest in some slots.
struct PendingSlots {
    static constexpr bool in_turns = false;
    static constexpr int32 unwanted_max = 6;
    static constexpr int32 rotation = 0;

    const Ring &ring;
    const int32 ring_id = ring.ring_id;
    const int32 slots = ring.slots;
    const SlotRange usual_slots;
    const LeftItems &left;
    const int64 passed_over;
    Probes &probes;
    const TimestampTz now;

    SlotRange slots_of(int16 rank) const {
        return rank == core::usual_rank ? usual_slots : all_slots(ring);
    }
    TimestampTz begin(int16 rank) {
        SessionProbe &probe = probes[static_cast<size_t>(rank)];
        return slots_of(rank) == all_slots(ring) ? probe.begin(now) : probe.begin_of_part();
    }
    void end(int16 rank, TimestampTz first, core::SeenTransactions seen) {
        if (slots_of(rank) == all_slots(ring))
            probes[static_cast<size_t>(rank)].end(now, first, seen);
    }
    static bool may_work_in(int32) { return true; }
    static bool may_take(TupleTableSlot *row) { return is_free(row); }
    bool takes(const DueItem &item) const { return !left.has(item); }
    static void note_later(int32, TimestampTz) {}
};

} // namespace

SlotRange some_slots(const Ring &ring) {
    constexpr int32 parts = 8; // the number of slots is a power of two, and no smaller
    const int32 count = ring.slots / parts;
    const auto part = static_cast<int32>(pg::random_fraction() * parts);
    return {part * count, (part + 1) * count};
}

std::span<FoundItem> find_pending(const Ring &ring, SlotRange usual_slots, const LeftItems &left,
                                  std::span<FoundItem> room, size_t limit) {
    Probes &probes = probes_of(ring);
    PendingSlots scope{.ring = ring,
                       .usual_slots = usual_slots,
                       .left = left,
                       .passed_over = left.count,
                       .probes = probes,
                       .now = pg::clock_now()};
    CommandCounterIncrement(); // what this transaction has written counts as well
    std::span<FoundItem> found = search_slots(scope, room, limit);
    const bool is_whole = std::all_of(probes.begin(), probes.end(),
                                      [](const SessionProbe &probe) { return probe.is_full(); });
    // Nothing is due only when nothing older is either.
    if (found.empty() && usual_slots == all_slots(ring) && !is_whole) {
        for (SessionProbe &probe : probes)
            probe.demand_full();
        found = search_slots(scope, room, limit);
    }
    return found;
}

} // namespace stacksaga
