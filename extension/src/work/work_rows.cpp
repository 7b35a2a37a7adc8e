#include "src/work/work_rows.hpp"

#include "core/queue/claim_order.hpp"
#include "core/saga/saga_state.hpp"

#include "pg/statement/query.hpp"

namespace stacksaga {

namespace {

// The first columns of the table, as far as a search looks at them.
#define WORK_COLUMNS                                                                               \
    "saga_id, step_no, rank, direction, token, ring_id, slot, due_at, attempt, attempt_base,"      \
    " NULL, NULL, lease_until, NULL, NULL, purpose, verifying, NULL, NULL, queue, group_key"

#define IN_SLOT(OF_ITS_RANK)                                                                       \
    "(SELECT " WORK_COLUMNS "  FROM stacksaga.work AS w"                                           \
    "  WHERE w.ring_id = $1 AND w.slot = s.slot AND w.due_at >= $5 AND w.due_at <= $6"             \
    "" OF_ITS_RANK " ORDER BY w.due_at LIMIT $7)"
constinit pg::Statement list_of_slots{
    "SELECT w.* FROM (SELECT slot FROM unnest($3) AS s(slot) ORDER BY slot # $4) AS s, LATERAL ("
    "" IN_SLOT(" AND $2 = 3" IS_OF_USUAL_RANK) " UNION ALL " IN_SLOT(
        IS_OF_RANK("$2")) ") AS w LIMIT $8",
    pg::Reads::this_node};

constinit pg::Statement list_ranks{
    "SELECT r.rank::smallint FROM generate_series(0, 5) AS r(rank), LATERAL ("
    "       SELECT FROM stacksaga.work w"
    "        WHERE w.ring_id = $1" IS_OF_RANK("r.rank::smallint") " LIMIT 1) AS w",
    pg::Reads::this_node};

#define IN_QUEUE(OF_THESE)                                                                         \
    "(SELECT " WORK_COLUMNS "  FROM stacksaga.work AS w"                                           \
    "  WHERE ring_id = $1 AND queue = $2 AND queue IS NOT NULL AND NOT verifying"                  \
    "    AND due_at <= $4 AND " OF_THESE
// Of each rank the oldest, however many are due of another.
constinit pg::Statement list_of_queue{
    IN_QUEUE("$3 AND lease_until IS NOT NULL ORDER BY due_at LIMIT $6)") " UNION ALL " IN_QUEUE(
        "NOT $3 AND lease_until IS NULL AND rank = 3 AND group_key = ''"
        " ORDER BY due_at LIMIT $5)") " UNION ALL (SELECT w.* FROM generate_series(0, 5) AS r(of_rank), LATERAL "
                                      "" IN_QUEUE(
                                          "NOT $3 AND lease_until IS NULL AND rank = r.of_rank::smallint"
                                          " AND (rank <> 3 OR group_key <> '') ORDER BY due_at LIMIT $6)") " AS w)",
    pg::Plans::by_statistics, pg::Reads::this_node};

bool is_null(TupleTableSlot *row, WorkColumn column) {
    return slot_attisnull(row, pg::column_number(column));
}

} // namespace

FoundItem found_item(TupleTableSlot *row) {
    const int32 attempt = DatumGetInt32(value_in(row, WorkColumn::attempt));
    return {.item = {.saga_id = *DatumGetUUIDP(value_in(row, WorkColumn::saga_id)),
                     .slot = DatumGetInt32(value_in(row, WorkColumn::slot)),
                     .purpose = purpose_of(value_in(row, WorkColumn::purpose)),
                     .step_no = DatumGetInt16(value_in(row, WorkColumn::step_no)),
                     .direction = direction_of(row),
                     .attempt = attempt},
            .place = place_of(row),
            .is_retry = is_null(row, WorkColumn::queue) && is_null(row, WorkColumn::lease_until) &&
                        !DatumGetBool(value_in(row, WorkColumn::verifying)) &&
                        attempt > DatumGetInt32(value_in(row, WorkColumn::attempt_base))};
}

pg::Rows rows_by_statement(const SlotRows &rows, int64 limit) {
    return list_of_slots.run(pg::param(rows.ring_id), pg::param(rows.rank),
                             pg::param_array(rows.slots), pg::param(rows.rotation),
                             pg::param_time(rows.from), pg::param_time(rows.until),
                             pg::param(rows.per_slot), pg::param(limit));
}

uint32 ranks_for_workers(int32 ring_id) {
    uint32 ranks = 1U << core::usual_rank;
    pg::Rows rows = list_ranks.run(pg::param(ring_id));
    for (uint64 i = 0; i < rows.count(); ++i)
        ranks |= 1U << rows.int2(i);
    return ranks;
}

pg::Rows rows_by_statement(const QueueRows &rows) {
    return list_of_queue.run(pg::param(rows.ring_id), pg::param(rows.queue),
                             pg::param(rows.are_leased), pg::param_time(rows.until),
                             pg::param(rows.usual), pg::param(rows.per_rank));
}

} // namespace stacksaga
