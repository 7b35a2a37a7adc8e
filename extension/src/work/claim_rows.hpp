// Rows of work as the search for claimable steps reads them, and its parts.
#pragma once
#include "core/saga/work_purpose.hpp"

#include "src/work/claim_memory.hpp"
#include "src/work/claim_search.hpp"
#include "src/work/work_rows.hpp"

namespace stacksaga {

/// Of an index that has due_at at this place: of one of a queue's rows by due_at alone, the third.
inline pg::KeyColumn due_until_key(TimestampTz until, AttrNumber index_due_at = 3) {
    return {F_TIMESTAMPTZ_LE, InvalidOid, TimestampTzGetDatum(until), BTLessEqualStrategyNumber,
            index_due_at};
}

/// A step of a queue, of which a claim reads as much. What it points to lives in the current memory
/// context.
inline FoundItem candidate_of(TupleTableSlot *row) {
    const std::string_view group = pg::view_of_text(value_in(row, WorkColumn::group_key));
    FoundItem found{.item = {.saga_id = *DatumGetUUIDP(value_in(row, WorkColumn::saga_id)),
                             .slot = DatumGetInt32(value_in(row, WorkColumn::slot)),
                             .purpose = core::WorkPurpose::step,
                             .step_no = DatumGetInt16(value_in(row, WorkColumn::step_no)),
                             .direction = direction_of(row)},
                    .place = place_of(row),
                    .is_retry = false};
    if (!group.empty())
        found.group = {pnstrdup(group.data(), group.size()), group.size()};
    return found;
}

/// Calls `visit` with rows of an index of a queue's rows by due_at, in that order, until it returns
/// false: from where the probe begins, up to `until`. After the first row, or what is left of it,
/// `stepped_over` entries of the index are not looked at. What comes after `now` is mostly what
/// dead rows have left there, in the index of leases.
template <class F>
void each_due(const ClaimSearch &search, WorkIndex index, SessionProbe &probe, TimestampTz until,
              size_t stepped_over, F &&visit) {
    const std::array key{ring_key(search.ring_id), queue_key(search.queue),
                         due_key(probe.begin(search.now)), due_until_key(until)};
    TimestampTz first_left = search.now;
    pg::with_index(work_table, index, [&](pg::IndexReader &reader) {
        reader.seek(std::span{key}.first(until == DT_NOEND ? 3 : 4));
        TupleTableSlot *row = reader.next();
        probe.note_row(search.now);
        if (row != nullptr)
            first_left = std::min(first_left, due_at_of(row));
        if (row != nullptr && stepped_over > 0)
            row = reader.skip(stepped_over - 1) ? reader.next() : nullptr;
        while (row != nullptr && visit(row))
            row = reader.next();
        probe.end(search.now, first_left, reader.seen());
    });
}

/// Which rows a search passes over: what others are changing, what this transaction's snapshot does
/// not see, and retries in slots that the claimer does not hold.
class RowFilter {
public:
    explicit RowFilter(const ClaimSearch &search);

    bool passes(TupleTableSlot *row) const {
        if (!is_free(row))
            return false;
        return held_ == nullptr || DatumGetInt32(value_in(row, WorkColumn::attempt)) == 0 ||
               held_[DatumGetInt32(value_in(row, WorkColumn::slot))];
    }

private:
    const bool *held_ = nullptr; ///< of each slot; null: the claimer is no node
};

/// Takes candidates from rows that a search may take, up to a number of them.
class CandidateList {
public:
    CandidateList(const ClaimSearch &search, size_t limit)
        : search_(search), limit_(limit),
          list_(static_cast<FoundItem *>(palloc(sizeof(FoundItem) * std::max<size_t>(1, limit)))) {}

    /// Whether there is room for more.
    bool add(TupleTableSlot *row) {
        if (!filter_) // made for the first row: often there is none
            filter_.emplace(search_);
        if (count_ < limit_ && filter_->passes(row))
            list_[count_++] = candidate_of(row);
        return count_ < limit_;
    }
    std::span<FoundItem> found() const { return {list_, count_}; }

private:
    const ClaimSearch &search_;
    std::optional<RowFilter> filter_{};
    size_t limit_;
    FoundItem *list_;
    size_t count_ = 0;
};
static_assert(std::is_trivially_destructible_v<CandidateList>);

/// The due steps without a group of the usual rank, from the oldest on, or from so many entries of
/// the index behind it.
std::span<FoundItem> read_usual(const ClaimSearch &search, size_t entries, size_t limit);

/// The ranks of which something is due that is not of the usual rank or has a group: one bit each.
uint32 find_due_ranks(const ClaimSearch &search, QueueMemory &memory);

/// Candidates of all ranks. `listed`: what is due has been read already, and `due_ranks` does not
/// matter.
Candidates find_by_turns(const ClaimSearch &search, QueueMemory &memory, uint32 due_ranks,
                         std::optional<std::span<const FoundItem>> listed = {});

} // namespace stacksaga
