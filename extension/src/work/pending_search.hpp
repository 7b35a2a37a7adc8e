// The search of run_pending(): what is due in the ring, in slots of any owner, the oldest of each
// rank first. The saga's row lock and the compare-and-set of its work row prevent that a worker
// does it too.
//
// It goes over all slots and keeps the oldest items, so it reads a row or two of each slot that has
// any, however long the backlog. Sessions that meet others at the oldest items search a part of the
// slots for those of the usual rank, another one each time.
#pragma once
#include "src/ring/rings.hpp"
#include "src/work/slot_search.hpp"

namespace stacksaga {

/// Items that a call leaves alone, since only a worker may run their handlers.
struct LeftItems {
    DueItem *list;
    int32 count = 0;

    bool has(const DueItem &item) const {
        return std::any_of(list, list + count,
                           [&](const DueItem &left) { return is_same(left, item); });
    }
};

inline SlotRange all_slots(const Ring &ring) {
    return {0, ring.slots};
}
/// An eighth of them, at random.
SlotRange some_slots(const Ring &ring);

/// At most `limit` items and a reserve, but for those that are left alone, in `room`: of the usual
/// rank those of some slots, and all of the other ranks. Items that another session changes at this
/// moment are passed over where that is seen. Inside with_spi.
std::span<FoundItem> find_pending(const Ring &ring, SlotRange usual_slots, const LeftItems &left,
                                  std::span<FoundItem> room, size_t limit);

} // namespace stacksaga
