// Due rows of work as a search has found them, rank by rank.
#pragma once
#include "core/queue/claim_order.hpp"
#include "core/saga/saga_state.hpp"
#include "core/work/item_order.hpp"

#include "src/work/due_item.hpp"

namespace stacksaga {

// Rows of work that workers do, and not services alone.
#define IS_FOR_WORKERS "(w.queue IS NULL OR w.verifying OR w.lease_until IS NOT NULL)"
// Those of one rank, $RANK, as two statements search for them: each names the rows of one index.
#define IS_OF_USUAL_RANK " AND w.rank = 3 AND " IS_FOR_WORKERS
#define IS_OF_RANK(RANK) " AND w.rank = " RANK " AND w.rank <> 3 AND " IS_FOR_WORKERS

/// A due row as it was found; a hint until its saga is locked.
struct FoundItem {
    DueItem item;
    core::ItemPlace place;
    bool is_retry; ///< a budget may defer it
    /// How long the budget defers it, in microseconds; nothing: not asked yet.
    std::optional<int64> deferral{};
    int32 steps = 0;       ///< of its saga, done in this place by the transaction that runs it
    bool is_owned = false; ///< its slot is this worker's, in the transaction that runs it
};

inline bool is_same(const DueItem &a, const DueItem &b) {
    return memcmp(&a.saga_id, &b.saga_id, sizeof a.saga_id) == 0 && a.purpose == b.purpose &&
           a.step_no == b.step_no && a.direction == b.direction;
}

/// The ranks of which a worker of the ring has something to do, now or later: one bit each. By a
/// statement, which costs a probe for each rank.
uint32 ranks_for_workers(int32 ring_id);

/// Adds to the reserve, which ends at `end`, those items that are not in the list itself. Returns
/// where it ends then.
inline size_t add_reserve(std::span<FoundItem> room, size_t listed, size_t end,
                          std::span<const FoundItem> read) {
    const std::span<const FoundItem> list = room.first(listed);
    for (const FoundItem &found : read) {
        const auto is_listed = [&](const FoundItem &i) { return is_same(i.item, found.item); };
        if (std::any_of(list.begin(), list.end(), is_listed))
            continue;
        room[end] = found;
        room[end++].place.is_reserve = true;
    }
    return end;
}

/// How much room collect_items() needs for a list of so many.
inline size_t room_of_list(size_t limit) {
    return limit + (core::lowest_rank + 1) * core::reserve_of(limit);
}

/// The first due items, at most `limit`, in their order; behind these, where there may be more, a
/// reserve of the ranks that have few of them. `source.read(rank, room)` reads the first ones of a
/// rank and returns how many.
template <class Source>
std::span<FoundItem> collect_items(Source &&source, std::span<FoundItem> room, size_t limit) {
    size_t listed = 0;
    size_t of_last = 0;
    int16 last = core::compensation_rank;
    for (int16 rank = last; rank <= core::lowest_rank && listed < limit; ++rank) {
        of_last = source.read(rank, room.subspan(listed, limit - listed));
        listed += of_last;
        last = rank;
    }
    size_t end = listed;
    if (listed == limit) {
        const size_t wanted = core::reserve_of(limit);
        const bool has_few = of_last < wanted && room[0].place.rank < last;
        for (int16 rank = has_few ? last : last + 1; rank <= core::lowest_rank; ++rank) {
            const size_t count = source.read(rank, room.subspan(end, wanted));
            end = add_reserve(room, listed, end, room.subspan(end, count));
        }
    }
    for (size_t i = 0; i < end; ++i)
        room[i].place.number = static_cast<int32>(i);
    std::sort(
        room.begin(), room.begin() + static_cast<ptrdiff_t>(listed),
        [](const FoundItem &a, const FoundItem &b) { return core::goes_before(a.place, b.place); });
    return room.first(end);
}

/// Whether the list holds items of several ranks.
inline bool is_mixed(std::span<const FoundItem> list) {
    return !list.empty() && list.front().place.rank != list.back().place.rank;
}
inline bool has_reserve(std::span<const FoundItem> list) {
    return !list.empty() && list.back().place.is_reserve;
}

/// What follows a step of the item at once stays in its place, behind what is due longer.
inline void put_back(FoundItem &found, const DueItem &next, TimestampTz now) {
    found.item = next;
    found.place.due_at = now;
    if (next.direction == core::Direction::compensate)
        found.place.rank = core::compensation_rank;
    found.is_retry = false;
    found.deferral.reset();
}

/// Moves the item to the front of the list, and what stood before it behind it.
inline void move_to_front(std::span<FoundItem> list, FoundItem *item) {
    std::rotate(list.data(), item, item + 1);
}

} // namespace stacksaga
