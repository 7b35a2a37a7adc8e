// The search by slots, rank by rank, for workers and for run_pending(): each has a Scope, which
// says where to look and which rows to take.
//
// One descent of an index passes over all empty slots up to the next one that has a row, so where
// little is due a search needs about ten of them, whatever the number of slots.
#pragma once
#include "core/queue/claim_order.hpp"
#include "core/work/item_order.hpp"

#include "src/work/work_rows.hpp"

namespace stacksaga {

/// Slots next to each other. Their number is a power of two.
struct SlotRange {
    int32 first;
    int32 end;

    bool operator==(const SlotRange &) const = default;
};

/// A Scope has:
///     int32 ring_id; int32 slots; TimestampTz now;
///     SlotRange slots_of(rank)       where it looks for those of a rank
///     int32 rotation                 each slot's place among them is its number ^ rotation
///     static bool in_turns           slot by slot, until there are enough; else the oldest of all
///     static int32 unwanted_max      how many rows behind those that it wants it reads on: as many
///                                    as cost less than to seek the next slot
///     TimestampTz begin(rank)        the instant from which an index is read
///     void end(rank, first, seen)    what it held begins at `first`
///     int64 passed_over              how many due items it does not take, at most
///     bool may_work_in(slot)
///     bool may_take(row), takes(item) which rows it passes over
///     void note_later(slot, due_at)  a row that is not due
template <class Scope> class SlotSearch {
public:
    /// By these indexes of due rows by slot, of the usual rank and of the others; nullptr: by
    /// statements.
    SlotSearch(Scope &scope, pg::IndexReader *usual, pg::IndexReader *by_rank)
        : scope_(scope), usual_(usual), by_rank_(by_rank),
          is_read_(static_cast<uint8 *>(palloc(static_cast<size_t>(scope.slots)))),
          ranks_(usual != nullptr ? 0 : ranks_for_workers(scope.ring_id)) {}

    /// The first due items of the rank, in the order of due_at.
    size_t read(int16 rank, std::span<FoundItem> room) {
        rank_ = rank;
        first_ = scope_.now;
        room_ = room;
        count_ = 0;
        if (usual_ != nullptr)
            read_index();
        else if ((ranks_ & (1U << rank)) != 0)
            read_by_statement();
        std::sort_heap(room_.begin(), room_.begin() + static_cast<ptrdiff_t>(count_), goes_before);
        return count_;
    }

    size_t read_oldest(int16 rank, std::span<FoundItem> room) { return read(rank, room); }

private:
    static bool goes_before(const FoundItem &a, const FoundItem &b) {
        return core::goes_before(a.place, b.place);
    }
    bool is_full() const { return count_ == room_.size(); }

    void read_index() {
        from_ = scope_.begin(rank_);
        memset(is_read_, 0, static_cast<size_t>(scope_.slots));
        const SlotRange range = scope_.slots_of(rank_);
        unread_ = range.end - range.first;
        // The first seek reads all slots where little is due, so a step for each would cost more.
        for (int32 i = 0; unread_ > 0 && !(Scope::in_turns && is_full()); ++i) {
            const int32 slot = range.first + (i ^ scope_.rotation);
            if (is_read_[slot] == 0)
                read_slots(slot, range.end);
        }
        scope_.end(rank_, first_, reader().seen());
    }
    /// `end`: none of those before it is read.
    int32 next_read_slot(int32 slot, int32 end) const {
        const void *next = memchr(is_read_ + slot, 1, static_cast<size_t>(end - slot));
        return next == nullptr ? end
                               : static_cast<int32>(static_cast<const uint8 *>(next) - is_read_);
    }
    void read_slots(int32 slot, int32 range_end);
    pg::IndexReader &reader() const { return rank_ == core::usual_rank ? *usual_ : *by_rank_; }
    void seek(int32 slot, int32 last) const;

    void read_by_statement();

    bool is_wanted(int32 slot, TimestampTz due_at) const {
        return due_at <= scope_.now && scope_.may_work_in(slot) &&
               (!is_full() ||
                (!Scope::in_turns && count_ > 0 && due_at < room_.front().place.due_at));
    }
    void see(TupleTableSlot *row, TimestampTz due_at);

    Scope &scope_;
    pg::IndexReader *usual_;
    pg::IndexReader *by_rank_;
    uint8 *is_read_;   ///< of each slot 1 when nothing more of it is wanted
    int32 unread_ = 0; ///< how many of them are left
    uint32 ranks_;     ///< that statements look for
    // Of the rank that is read.
    int16 rank_ = 0;
    TimestampTz from_ = DT_NOBEGIN;
    TimestampTz first_ = DT_NOEND; ///< when the oldest of those that were seen was due
    std::span<FoundItem> room_{};  ///< a heap: the one that is due last is in front
    size_t count_ = 0;
    int32 seen_ = 0;
};

/// To the first row of the slot, from the instant on. Where there is none, to the first row of the
/// next slots up to `last`.
template <class Scope> void SlotSearch<Scope>::seek(int32 slot, int32 last) const {
    std::array<pg::KeyColumn, 4> key{ring_key(scope_.ring_id), rank_key(rank_)};
    size_t columns = rank_ == core::usual_rank ? 1 : 2;
    if (from_ != DT_NOBEGIN) {
        key[columns++] = slot_key(slot);
        key[columns++] = due_key(from_);
    } else {
        const auto column = static_cast<AttrNumber>(columns + 1);
        key[columns++] = {F_INT4GE, InvalidOid, Int32GetDatum(slot), BTGreaterEqualStrategyNumber};
        key[columns++] = {F_INT4LE, InvalidOid, Int32GetDatum(last), BTLessEqualStrategyNumber,
                          column};
    }
    reader().seek(std::span{key}.first(columns));
}

template <class Scope> void SlotSearch<Scope>::read_slots(int32 slot, int32 range_end) {
    const int32 last = from_ == DT_NOBEGIN ? next_read_slot(slot, range_end) - 1 : slot;
    seek(slot, last);
    int32 end = last + 1; // of the slots of which nothing more is wanted
    int32 unwanted = 0;
    while (TupleTableSlot *row = reader().next()) {
        const int32 its_slot = DatumGetInt32(value_in(row, WorkColumn::slot));
        const TimestampTz due_at = due_at_of(row);
        if (due_at > scope_.now) {
            scope_.note_later(its_slot, due_at);
        } else if (Scope::in_turns && its_slot != slot) {
            end = its_slot;
            break;
        }
        if (is_wanted(its_slot, due_at)) {
            unwanted = 0;
            see(row, due_at);
        } else if (++unwanted > Scope::unwanted_max) {
            end = its_slot + 1;
            break;
        }
    }
    memset(is_read_ + slot, 1, static_cast<size_t>(end - slot));
    unread_ -= end - slot;
}

template <class Scope> void SlotSearch<Scope>::see(TupleTableSlot *row, TimestampTz due_at) {
    first_ = std::min(first_, due_at);
    if (!scope_.may_take(row))
        return;
    const FoundItem found = found_item(row);
    if (!scope_.takes(found.item))
        return;
    if (is_full()) {
        std::pop_heap(room_.begin(), room_.end(), goes_before);
        --count_;
    }
    room_[count_] = found;
    room_[count_++].place.number = ++seen_;
    std::push_heap(room_.begin(), room_.begin() + static_cast<ptrdiff_t>(count_), goes_before);
}

template <class Scope> void SlotSearch<Scope>::read_by_statement() {
    const SlotRange range = scope_.slots_of(rank_);
    auto *slots = static_cast<int32 *>(palloc(sizeof(int32) * static_cast<size_t>(scope_.slots)));
    size_t count = 0;
    for (int32 slot = range.first; slot < range.end; ++slot)
        if (scope_.may_work_in(slot))
            slots[count++] = slot;
    SlotRows rows{.ring_id = scope_.ring_id,
                  .rank = rank_,
                  .slots = {slots, count},
                  .rotation = scope_.rotation,
                  .from = DT_NOBEGIN,
                  .until = scope_.now,
                  .per_slot = static_cast<int64>(room_.size()) + scope_.passed_over};
    each_row(rows_by_statement(rows, Scope::in_turns ? rows.per_slot : INT64_MAX),
             [&](TupleTableSlot *row) {
                 if (is_wanted(DatumGetInt32(value_in(row, WorkColumn::slot)), due_at_of(row)))
                     see(row, due_at_of(row));
                 return true;
             });
    if (count_ > 0 || !Scope::in_turns)
        return;
    rows.from = scope_.now + 1;
    rows.until = DT_NOEND;
    rows.per_slot = 1;
    each_row(rows_by_statement(rows, scope_.slots), [&](TupleTableSlot *row) {
        scope_.note_later(DatumGetInt32(value_in(row, WorkColumn::slot)), due_at_of(row));
        return true;
    });
}

/// The first due items of the scope, at most `limit`, and a reserve, in `room`. Inside with_spi.
template <class Scope>
std::span<FoundItem> search_slots(Scope &scope, std::span<FoundItem> room, size_t limit) {
    std::span<FoundItem> found;
    const auto collect = [&](pg::IndexReader *usual, pg::IndexReader *by_rank) {
        found = collect_items(SlotSearch<Scope>(scope, usual, by_rank), room, limit,
                              core::reserve_of(limit));
    };
    bool is_read = false;
    if (work_table.obstacle() == nullptr)
        static_cast<void>(
            pg::try_index(work_table, WorkIndex::for_workers, [&](pg::IndexReader &usual) {
                is_read =
                    pg::try_index(work_table, WorkIndex::for_workers_by_rank,
                                  [&](pg::IndexReader &by_rank) { collect(&usual, &by_rank); });
            }));
    if (!is_read)
        collect(nullptr, nullptr);
    return found;
}

} // namespace stacksaga
