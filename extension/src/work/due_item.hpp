// Due rows of the table `work`: as searches find them, rank by rank, and as they hand them to those
// who do what is due.
#pragma once
#include "core/queue/claim_order.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/work_purpose.hpp"
#include "core/work/item_order.hpp"

#include "pg/pg.hpp"

namespace stacksaga {

/// Where a due work row was seen; a hint until its saga is locked.
struct DueItem {
    pg_uuid_t saga_id;
    int32 slot;
    core::WorkPurpose purpose;
    int16 step_no;
    core::Direction direction;
    int32 attempt = 0; ///< attempts so far
};

/// The same with its place in the list of a search.
struct FoundItem {
    DueItem item;
    core::ItemPlace place;
    bool is_retry;            ///< a budget may defer it
    bool is_owned = false;    ///< its slot is this worker's, in the transaction that runs it
    std::string_view group{}; ///< as claims find it
    /// How long the budget defers it, in microseconds; nothing: not asked yet.
    std::optional<int64> deferral{};
    int32 steps = 0; ///< of its saga, done in this place by the transaction that runs it
};

inline bool is_same(const DueItem &a, const DueItem &b) {
    return memcmp(&a.saga_id, &b.saga_id, sizeof a.saga_id) == 0 && a.purpose == b.purpose &&
           a.step_no == b.step_no && a.direction == b.direction;
}

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

/// How much room collect_items() needs for a list of that length.
inline size_t room_of_list(size_t limit, size_t reserve) {
    return limit + (core::lowest_rank + 1) * reserve;
}
inline size_t room_of_list(size_t limit) {
    return room_of_list(limit, core::reserve_of(limit));
}

/// The first due items, at most `limit`, in their order; behind these, where there may be more, a
/// reserve of the ranks that have few of them, so many of each. `source.read(rank, room)` reads the
/// first ones of a rank, in their order, and returns how many; read_oldest() those of a reserve.
template <class Source>
std::span<FoundItem> collect_items(Source &&source, std::span<FoundItem> room, size_t limit,
                                   size_t reserve) {
    size_t listed = 0;
    size_t of_last = 0;
    int16 last = core::compensation_rank;
    for (int16 rank = last; rank <= core::lowest_rank && listed < limit; ++rank) {
        of_last = source.read(rank, room.subspan(listed, limit - listed));
        listed += of_last;
        last = rank;
    }
    size_t end = listed;
    if (listed == limit && reserve > 0) {
        const bool has_few = of_last < reserve && room[0].place.rank < last;
        for (int16 rank = has_few ? last : last + 1; rank <= core::lowest_rank; ++rank) {
            const size_t count = source.read_oldest(rank, room.subspan(end, reserve));
            end = add_reserve(room, listed, end, room.subspan(end, count));
        }
    }
    for (size_t i = 0; i < end; ++i)
        room[i].place.number = static_cast<int32>(i);
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
