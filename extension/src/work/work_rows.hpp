// Rows of work as searches read them: straight from an index, in a range of instants; or by a
// statement where the table is not accessed directly, since somebody has partitioned it, or Citus
// manages it. Both show rows to the same code.
#pragma once
#include "core/saga/saga_state.hpp"
#include "core/work/item_order.hpp"

#include "pg/statement/function.hpp"
#include "pg/table/lookup.hpp"
#include "src/work/due_item.hpp"
#include "src/work/work_table.hpp"

namespace stacksaga {

// Rows of work that workers do, and not services alone.
#define IS_FOR_WORKERS "(w.queue IS NULL OR w.verifying OR w.lease_until IS NOT NULL)"
// Those of one rank, $RANK, as two statements search for them: each names the rows of one index.
#define IS_OF_USUAL_RANK " AND w.rank = 3 AND " IS_FOR_WORKERS
#define IS_OF_RANK(RANK) " AND w.rank = " RANK " AND w.rank <> 3 AND " IS_FOR_WORKERS

inline pg::KeyColumn ring_key(int32 ring_id) {
    return {F_INT4EQ, InvalidOid, Int32GetDatum(ring_id)};
}
inline pg::KeyColumn slot_key(int32 slot) {
    return {F_INT4EQ, InvalidOid, Int32GetDatum(slot)};
}
inline pg::KeyColumn queue_key(std::string_view queue) {
    return {F_TEXTEQ, C_COLLATION_OID, PointerGetDatum(pg::make_text(queue))};
}
inline pg::KeyColumn rank_key(int16 rank) {
    return {F_INT2EQ, InvalidOid, Int16GetDatum(rank)};
}
inline pg::KeyColumn due_key(TimestampTz from) {
    return {F_TIMESTAMPTZ_GE, InvalidOid, TimestampTzGetDatum(from), BTGreaterEqualStrategyNumber};
}

inline TimestampTz due_at_of(TupleTableSlot *row) {
    return DatumGetTimestampTz(value_in(row, WorkColumn::due_at));
}

inline core::Direction direction_of(TupleTableSlot *row) {
    return *core::direction_of(pg::view_of_text(value_in(row, WorkColumn::direction)));
}
inline core::ItemPlace place_of(TupleTableSlot *row) {
    return {.rank = DatumGetInt16(value_in(row, WorkColumn::rank)),
            .due_at = due_at_of(row),
            .number = 0,
            .is_reserve = false};
}

/// Whether a search takes the row: nobody else is changing it, and this transaction's snapshot sees
/// it.
inline bool is_free(TupleTableSlot *row) {
    return !pg::is_being_changed(row) && !pg::is_newer_than_snapshot(row);
}

/// The item of a worker that the row stands for.
FoundItem found_item(TupleTableSlot *row);

/// Shows the rows of a statement's result until `visit` returns false.
template <class F> void each_row(const pg::Rows &rows, F &&visit) {
    SPITupleTable *found = SPI_tuptable; // `visit` may run statements
    TupleTableSlot *slot = MakeSingleTupleTableSlot(found->tupdesc, &TTSOpsHeapTuple);
    for (uint64 i = 0; i < rows.count(); ++i)
        if (!visit(ExecStoreHeapTuple(found->vals[i], slot, false)))
            break;
    ExecDropSingleTupleTableSlot(slot);
}

/// Rows of workers of one rank, from slot to slot and in each by due_at.
struct SlotRows {
    int32 ring_id;
    int16 rank;
    std::span<const int32> slots;
    int32 rotation; ///< of the slots: each one's place is its number ^ rotation
    TimestampTz from;
    TimestampTz until;
    int64 per_slot; ///< no more of each
};
pg::Rows rows_by_statement(const SlotRows &rows, int64 limit);

/// The ranks of which a worker of the ring has something to do, now or later: one bit each. By a
/// statement, which costs a probe for each rank.
uint32 ranks_for_workers(int32 ring_id);

/// Rows of a queue that wait for a service, or are leased, each rank's by due_at.
struct QueueRows {
    int32 ring_id;
    std::string_view queue;
    bool are_leased;
    TimestampTz until;
    int64 usual;    ///< no more of the usual rank without a group
    int64 per_rank; ///< no more of each rank otherwise
};
pg::Rows rows_by_statement(const QueueRows &rows);

} // namespace stacksaga
