#include "src/work/worker_index.hpp"

#include "core/saga/saga_state.hpp"

#include "pg/statement/function.hpp"
#include "src/work/work_table.hpp"

namespace stacksaga {

namespace {

bool is_null(TupleTableSlot *row, WorkColumn column) {
    return slot_attisnull(row, pg::column_number(column));
}

} // namespace

void WorkerIndex::seek(int32 ring_id, int16 rank, int32 first, int32 last, TimestampTz from) const {
    std::array<pg::KeyColumn, 4> key{pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(ring_id)},
                                     pg::KeyColumn{F_INT2EQ, InvalidOid, Int16GetDatum(rank)}};
    size_t columns = has_rank ? 2 : 1;
    if (from != DT_NOBEGIN) {
        Assert(first == last);
        key[columns++] = {F_INT4EQ, InvalidOid, Int32GetDatum(first)};
        key[columns++] = {F_TIMESTAMPTZ_GE, InvalidOid, TimestampTzGetDatum(from),
                          BTGreaterEqualStrategyNumber, due_at_column()};
    } else {
        key[columns++] = {F_INT4GE, InvalidOid, Int32GetDatum(first), BTGreaterEqualStrategyNumber,
                          slot_column()};
        key[columns++] = {F_INT4LE, InvalidOid, Int32GetDatum(last), BTLessEqualStrategyNumber,
                          slot_column()};
    }
    reader->seek(std::span{key}.first(columns));
}

FoundItem found_item(TupleTableSlot *row) {
    const int32 attempt = DatumGetInt32(value_in(row, WorkColumn::attempt));
    return {.item = {.saga_id = *DatumGetUUIDP(value_in(row, WorkColumn::saga_id)),
                     .slot = DatumGetInt32(value_in(row, WorkColumn::slot)),
                     .purpose = purpose_of(value_in(row, WorkColumn::purpose)),
                     .step_no = DatumGetInt16(value_in(row, WorkColumn::step_no)),
                     .direction = *core::direction_of(
                         pg::view_of_text(value_in(row, WorkColumn::direction))),
                     .attempt = attempt},
            .place = {.rank = DatumGetInt16(value_in(row, WorkColumn::rank)),
                      .due_at = DatumGetTimestampTz(value_in(row, WorkColumn::due_at)),
                      .number = 0,
                      .is_reserve = false},
            .is_retry = attempt > DatumGetInt32(value_in(row, WorkColumn::attempt_base)) &&
                        is_null(row, WorkColumn::lease_until) &&
                        !DatumGetBool(value_in(row, WorkColumn::verifying)) &&
                        is_null(row, WorkColumn::queue)};
}

} // namespace stacksaga
