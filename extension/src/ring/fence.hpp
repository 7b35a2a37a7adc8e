// The fence: a worker holds the shared lock on a slot that it works in to the end of the
// transaction, and a node that takes the slot over holds the exclusive one. So a change of owner
// waits for the workers in the slot, and a worker that locks it later reads the new owner.
//
// The lock is a heavyweight lock of a tag class of our own: it queues fairly, writes no WAL and is
// released with a dead session (row locks FOR SHARE starve the taker). The owner is read after the
// lock and with the latest snapshot: read by the statement that locks, or under REPEATABLE READ, it
// would be the one from before the wait.
#pragma once
#include "src/ring/node.hpp"

namespace stacksaga {

/// Takes the shared lock on each of `slots` (ascending, no duplicates) and sets `owned[i]`: whether
/// it got the lock, the node still has its incarnation, and owns the slot now; in a ring that
/// pauses without a window, also whether the open window assigns the slot to it. Where `epochs` is
/// given, a slot with another epoch is not owned either.
///
/// Never waits: it skips a lock that is not granted at once, or that a taker waits for
/// (owned[i] = false), so that the taker gets its turn. What was found before the lock is a hint:
/// read inputs after it.
///
/// Inside with_spi. The locks last to the end of the transaction, which then cannot be prepared.
void lock_slots(const NodeIdentity &node, std::span<const int32> slots, std::span<bool> owned,
                std::span<const int64> epochs = {});

/// The exclusive lock on a slot, to the end of the (sub)transaction. With `wait` as long as
/// lock_timeout allows (55P03 after that); without it, false when it cannot be had at once.
bool lock_slot_exclusively(int32 ring_id, int32 slot, bool wait);
bool holds_slot_exclusively(int32 ring_id, int32 slot);

} // namespace stacksaga
