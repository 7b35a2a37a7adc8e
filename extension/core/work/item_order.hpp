// Which of the due items that were found goes next: by rank, then by due time; and of every eight
// steps that are done while lower ranks wait, one is the longest-waiting of those, as with claims
// (claim_order.hpp).
//
// A list that could not hold all that is due ends with a reserve: steps of lower ranks, for their
// turns alone, since steps of higher ranks wait that did not get into the list.
//
// Steps of one saga follow each other at once as long as that does not keep others from their turn.
#pragma once

#include "core/queue/claim_order.hpp"

#include <tuple>

namespace stacksaga::core {

/// Of a due item, what its place in the order depends on.
struct ItemPlace {
    std::int16_t rank;
    std::int64_t due_at;
    std::int32_t number; ///< in the list: tells items apart
    bool is_reserve;     ///< only for turns of lower ranks
};

constexpr bool goes_before(const ItemPlace &a, const ItemPlace &b) {
    return std::tuple(a.rank, a.due_at, a.number) < std::tuple(b.rank, b.due_at, b.number);
}
constexpr bool waits_longer(const ItemPlace &a, const ItemPlace &b) {
    return std::tuple(a.due_at, a.rank, a.number) < std::tuple(b.due_at, b.rank, b.number);
}

/// Maximum number of items of each lower rank in a list of `listed` items.
constexpr std::size_t reserve_of(std::size_t listed) {
    return listed / steps_per_turn + 1;
}

/// `first`, or in a turn of the lower ranks the longest-waiting one of those.
template <class Item> Item *or_lower(Item *first, std::span<Item> waiting, LowerRankTurn turn) {
    Item *lower = nullptr;
    if (turn.has_come())
        for (Item &i : waiting)
            if (i.place.rank > first->place.rank &&
                (lower == nullptr || waits_longer(i.place, lower->place)))
                lower = &i;
    return lower != nullptr ? lower : first;
}

/// The next one of these items, which have a `place` each; nullptr: there is only a reserve.
template <class Item> Item *next_item(std::span<Item> waiting, LowerRankTurn turn) {
    Item *first = nullptr;
    for (Item &i : waiting)
        if (!i.place.is_reserve && (first == nullptr || goes_before(i.place, first->place)))
            first = &i;
    return first == nullptr ? nullptr : or_lower(first, waiting, turn);
}

/// A step of the next item was done. A turn of the lower ranks has passed also when none waits.
constexpr void note_step(LowerRankTurn &turn) {
    turn.note(turn.has_come());
}

/// Whether, once a step of `item` is done, the next one of its saga may follow at once although the
/// others wait.
template <class Item>
bool may_run_ahead(const Item &item, std::span<const Item> others, LowerRankTurn turn) {
    note_step(turn);
    for (const Item &other : others) {
        if (other.place.rank < item.place.rank && !other.place.is_reserve)
            return false; // it had a turn of the lower ranks: one step
        if (other.place.rank > item.place.rank && turn.has_come())
            return false;
    }
    return true;
}

} // namespace stacksaga::core
