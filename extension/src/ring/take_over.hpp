// Changing the owners of slots, under the fence.
#pragma once
#include "src/ring/node.hpp"

namespace stacksaga {

/// A slot, the epoch under which it was found, and its new owner. The epoch is compared under the
/// lock.
struct SlotChange {
    int32 slot;
    int64 epoch;
    int64 owner; ///< an incarnation
};

struct SlotChanges {
    SlotChange *list; ///< ascending by slot
    size_t count;
    bool cut; ///< there were more
};

struct TakeOver {
    int taken = 0;
    int contended = 0; ///< slots in use; they stand first in the list
};
static_assert(std::is_trivially_destructible_v<SlotChanges>);

/// How many slots one transaction may change: an eighth of the server's lock table, so that several
/// nodes that start at once do not fill it.
int take_limit();

/// Writes new owners under the exclusive lock on each slot, which lasts to the end of the
/// transaction. It waits for at most one slot in use a call, for 100 ms, and only where no other
/// was free; a lock that it does not get is no error. Inside with_spi.
TakeOver take_over(int32 ring_id, SlotChanges &wanted);

} // namespace stacksaga
