#include "src/ring/take_over.hpp"

#include "pg/attempt.hpp"
#include "pg/clock.hpp"
#include "pg/query.hpp"
#include "src/ring/fence.hpp"
#include "src/ring/ring.hpp"

namespace stacksaga {

namespace {

constexpr int lock_timeout_ms = 100;

// A proposal for a third node stands; one for the older owner was made before it lost the slot.
#define STANDS "WHEN s.next_owner <> seen.owner AND s.next_owner IS DISTINCT FROM s.owner"
constinit pg::Statement take{"UPDATE stacksaga.slot s"
                             "   SET owner = seen.owner, epoch = $2, owned_since = $3,"
                             "       next_owner = CASE " STANDS " THEN s.next_owner END,"
                             "       next_from = CASE " STANDS " THEN s.next_from END,"
                             "       next_epoch = CASE " STANDS " THEN s.next_epoch END"
                             "  FROM unnest($4, $5, $6) AS seen(slot, epoch, owner)"
                             " WHERE s.ring_id = $1 AND s.slot = seen.slot AND s.epoch = seen.epoch"
                             " RETURNING s.slot"};
#undef STANDS

/// Writes the new owners of slots whose exclusive locks are held, except where the epoch has
/// changed.
int write_owners(int32 ring_id, std::span<const SlotChange> locked) {
    auto *slots = static_cast<int32 *>(palloc(sizeof(int32) * locked.size()));
    auto *epochs = static_cast<int64 *>(palloc(sizeof(int64) * locked.size()));
    auto *owners = static_cast<int64 *>(palloc(sizeof(int64) * locked.size()));
    for (size_t i = 0; i < locked.size(); ++i) {
        slots[i] = locked[i].slot;
        epochs[i] = locked[i].epoch;
        owners[i] = locked[i].owner;
    }
    const int64 epoch = raise_epoch(ring_id);
    pg::Rows taken = take.run(pg::param(ring_id), pg::param(epoch), pg::param_time(pg::clock_now()),
                              pg::param_array(std::span<const int32>{slots, locked.size()}),
                              pg::param_array(std::span<const int64>{epochs, locked.size()}),
                              pg::param_array(std::span<const int64>{owners, locked.size()}));
    return static_cast<int>(taken.count());
}

/// Takes all that can be locked at once; moves the others to the front of the list and counts them.
TakeOver take_uncontended(int32 ring_id, SlotChanges &wanted) {
    auto *locked = static_cast<SlotChange *>(palloc(sizeof(SlotChange) * wanted.count));
    volatile size_t contended = wanted.count;
    volatile int taken = 0;
    const bool done = pg::attempt(lock_timeout_ms, [&] {
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
    const SlotChange chosen = wanted.list[place];
    volatile int taken = 0;
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
    TakeOver result = take_uncontended(ring_id, wanted);
    if (result.taken == 0 && result.contended > 0) {
        const int taken = take_contended(ring_id, wanted, result.contended);
        result.taken = std::max(taken, 0);
        result.contended -= taken >= 0 ? 1 : 0;
    }
    return result;
}

} // namespace stacksaga
