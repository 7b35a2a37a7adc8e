#include "src/ring/take_over.hpp"

#include "core/ring/slot_owner.hpp"

#include "pg/statement/attempt.hpp"
#include "src/ring/fence.hpp"
#include "src/ring/slot_rows.hpp"

namespace stacksaga {

namespace {

constexpr int lock_timeout_ms = 100;

/// Writes the new owners of slots whose exclusive locks are held, except where the epoch has
/// changed.
int write_owners(int32 ring_id, std::span<SlotChange> locked) {
    std::sort(locked.begin(), locked.end(),
              [](const SlotChange &a, const SlotChange &b) { return a.slot < b.slot; });
    auto *numbers = static_cast<int32 *>(palloc(sizeof(int32) * locked.size()));
    for (size_t i = 0; i < locked.size(); ++i)
        numbers[i] = locked[i].slot;
    // The slots' locks come first, then the ring's epoch, which every writer of slot rows raises.
    // In this order everywhere, so no two takers wait for each other: one that holds the epoch
    // never waits for a slot.
    LockedSlots slots(ring_id);
    const SlotChange *seen = locked.data();
    return slots.change(read_slots(ring_id, {numbers, locked.size()}), [&](SlotRow &slot) {
        while (seen->slot != slot.slot)
            ++seen;
        // The caller chose by a reading without locks. Another node may have taken the slot since;
        // then its epoch differs, and the choice is void.
        if (slot.epoch != seen->epoch)
            return false;
        core::take(slot, seen->owner, slots.epoch());
        return true;
    });
}

/// Takes all that can be locked at once; moves the others to the front of the list and counts them.
TakeOver take_uncontended(int32 ring_id, SlotChanges &wanted) {
    auto *locked = static_cast<SlotChange *>(palloc(sizeof(SlotChange) * wanted.count));
    volatile size_t contended = wanted.count;
    volatile int taken = 0;
    const bool done = pg::attempt(lock_timeout_ms, [&] {
        // Without waiting: one slot in use must not delay all the free ones.
        size_t got = 0, left = 0;
        for (size_t i = 0; i < wanted.count; ++i) {
            if (lock_slot_exclusively(ring_id, wanted.list[i].slot, false))
                locked[got++] = wanted.list[i];
            else
                std::swap(wanted.list[left++], wanted.list[i]);
        }
        if (got > 0)
            taken = write_owners(ring_id, {locked, got});
        contended = left;
    });
    if (!done)
        return {0, static_cast<int>(wanted.count)};
    return {taken, static_cast<int>(contended)};
}

/// Takes one slot in use, another one each time: only by waiting in the queue of its lock does the
/// taker get its turn where transactions overlap.
int take_contended(int32 ring_id, SlotChanges &wanted, int contended) {
    static constinit uint32 turn = 0;
    const uint32 place = turn++ % static_cast<uint32>(contended);
    SlotChange chosen = wanted.list[place];
    volatile int taken = 0;
    // One alone, and in a subtransaction: while this session waits, workers that find a taker in
    // the queue skip the slot, so it soon comes free. A timeout releases nothing that was taken
    // before.
    const bool done = pg::attempt(lock_timeout_ms, [&] {
        lock_slot_exclusively(ring_id, chosen.slot, true);
        taken = write_owners(ring_id, {&chosen, 1});
    });
    if (done) { // it no longer is among those that stand first
        std::copy(wanted.list + place + 1, wanted.list + contended, wanted.list + place);
        wanted.list[contended - 1] = chosen;
    }
    return done ? taken : -1;
}

} // namespace

int take_limit() {
    constexpr int least = 64;
    return std::max(least, max_locks_per_xact * MaxBackends / 8);
}

TakeOver take_over(int32 ring_id, SlotChanges &wanted) {
    if (wanted.count == 0)
        return {};
    // Free slots first. Waiting is for a call that found none, for the exclusive locks that are
    // held keep other workers out until the commit.
    TakeOver result = take_uncontended(ring_id, wanted);
    if (result.taken == 0 && result.contended > 0) {
        const int taken = take_contended(ring_id, wanted, result.contended);
        result.taken = std::max(taken, 0);
        result.contended -= taken >= 0 ? 1 : 0;
    }
    return result;
}

} // namespace stacksaga
