// Functions of doctor(): the obstacles to accessing tables without a statement, the handlers that
// workers are running, and the transaction that holds a saga's row.
#include "core/dedupe/idempotency_state.hpp"

#include "pg/statement/function.hpp"
#include "pg/statement/result.hpp"
#include "pg/table/lookup.hpp"
#include "src/common/wake.hpp"
#include "src/dedupe/idempotency.hpp"
#include "src/definition/stored_definition.hpp"
#include "src/handler/crash_record.hpp"
#include "src/outbox/outbox_tables.hpp"
#include "src/queue/queue_limits.hpp"
#include "src/ring/rings.hpp"
#include "src/saga/saga_tables.hpp"
#include "src/work/work_table.hpp"

namespace stacksaga {

namespace {

constexpr std::array accessed_tables{
    &saga_table,  &attribute_table,    &work_table,       &effect_table,     &failure_table,
    &queue_table, &queue_claims_table, &idempotency_keys, &definition_table, &ring_table,
    &node_table,  &subscription_table, &tick_table,       &position_table,   &retry_table,
    &dead_table,  &log_tables[0],      &log_tables[1],    &log_tables[2],
};

Datum text_datum(const char *value) {
    return PointerGetDatum(pg::make_text(value));
}

void add_row(pg::ResultSet &result, const pg::Table &table, const char *index,
             const char *obstacle) {
    const pg::TableDescription &description = table.description();
    result.add(pg::of(text_datum(description.name)),
               index == nullptr ? pg::null() : pg::of(text_datum(index)),
               pg::of(text_datum(obstacle)),
               pg::of(BoolGetDatum(description.described == pg::Described::what_is_read)));
}

/// Lists each index that cannot be read, and otherwise the reason why the table cannot be written.
void report(pg::ResultSet &result, pg::Table &table) {
    const pg::TableDescription &description = table.description();
    const char *obstacle =
        description.described == pg::Described::whole ? table.obstacle() : nullptr;
    bool is_read = true;
    for (size_t i = 0; i < description.indexes.size(); ++i)
        if (const char *unreadable = table.unreadable(i)) {
            add_row(result, table, description.indexes[i].name, unreadable);
            is_read = false;
        }
    if (obstacle != nullptr && is_read)
        add_row(result, table, nullptr, obstacle);
}

} // namespace

// table_obstacles() -> TABLE(table_name, index_name, obstacle, is_read_only)
STACKSAGA_FUNCTION(table_obstacles) {
    pg::ResultSet result(fcinfo);
    for (pg::Table *table : accessed_tables)
        report(result, *table);
    return pg::ResultSet::finish();
}

// running_handlers() -> TABLE(worker integer, pid integer, saga_id uuid, step_no smallint,
//                             subscription_id integer, timeout_at timestamptz,
//                             since timestamptz)
STACKSAGA_FUNCTION(running_handlers) {
    pg::ResultSet result(fcinfo);
    CrashRecord record{};
    for (int32 number = 1; number <= workers_max; ++number) {
        if (!read_crash_record(number, record) || record.kind == Recorded::nothing)
            continue;
        const bool is_step = record.kind == Recorded::step;
        const int32 subscription = record.kind == Recorded::batch ? record.batch.subscription_id
                                                                  : record.message.subscription_id;
        result.add(pg::of(Int32GetDatum(number)), pg::of(Int32GetDatum(record.pid)),
                   is_step ? pg::of(UUIDPGetDatum(&record.step.saga_id)) : pg::null(),
                   is_step ? pg::of(Int16GetDatum(record.step.step_no)) : pg::null(),
                   is_step ? pg::null() : pg::of(Int32GetDatum(subscription)),
                   record.timeout_at == 0 ? pg::null()
                                          : pg::of(TimestampTzGetDatum(record.timeout_at)),
                   pg::of(TimestampTzGetDatum(record.since)));
    }
    return result.finish();
}

// holder_of_saga(saga_id uuid) -> xid
STACKSAGA_FUNCTION(holder_of_saga) {
    const Datum id = PG_GETARG_DATUM(0);
    TransactionId holder = InvalidTransactionId;
    (void)pg::try_index(saga_table, SagaIndex::primary_key, [&](pg::IndexReader &sagas) {
        const std::array key{pg::KeyColumn{F_UUID_EQ, InvalidOid, id}};
        sagas.seek(key);
        if (TupleTableSlot *row = sagas.next(); row != nullptr)
            holder = pg::holder_of(row);
    });
    if (!TransactionIdIsValid(holder))
        PG_RETURN_NULL();
    // The caller's snapshot was taken earlier, so a transaction that still runs is not before its
    // xmin.
    if (TransactionIdFollowsOrEquals(holder, TransactionXmin))
        holder = SubTransGetTopmostTransaction(holder);
    PG_RETURN_TRANSACTIONID(holder);
}

} // namespace stacksaga
