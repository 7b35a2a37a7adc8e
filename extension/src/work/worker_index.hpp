// The two indexes of due rows of work by slot: of those of the usual rank, and of those of the
// others.
#pragma once
#include "pg/table/lookup.hpp"
#include "src/work/found_items.hpp"
#include "src/work/work_table.hpp"

namespace stacksaga {

/// One of them, and the columns after the ring's and, in the other one, the rank's.
struct WorkerIndex {
    pg::IndexReader *reader;
    bool has_rank;

    AttrNumber slot_column() const { return has_rank ? 3 : 2; }
    AttrNumber due_at_column() const { return has_rank ? 4 : 3; }

    /// To the first row of the slots from `first` to `last`, in the order of slot and due_at. Where
    /// rows that are due before an instant are to be left out, there can be one slot only;
    /// DT_NOBEGIN leaves out none.
    void seek(int32 ring_id, int16 rank, int32 first, int32 last, TimestampTz from) const;
};

/// Calls `body` with both indexes. False: they cannot be read directly.
template <class F> bool with_worker_indexes(F &&body) {
    bool is_read = false;
    const bool is_usual_read =
        pg::try_index(work_table, WorkIndex::for_workers, [&](pg::IndexReader &usual) {
            is_read = pg::try_index(
                work_table, WorkIndex::for_workers_by_rank, [&](pg::IndexReader &by_rank) {
                    body(WorkerIndex{&usual, false}, WorkerIndex{&by_rank, true});
                });
        });
    return is_usual_read && is_read;
}

/// The item that a row of work stands for.
FoundItem found_item(TupleTableSlot *row);

} // namespace stacksaga
