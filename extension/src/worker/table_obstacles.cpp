// The reasons why tables of the extension cannot be accessed without a statement, for doctor().
#include "core/dedupe/idempotency_state.hpp"

#include "pg/statement/function.hpp"
#include "pg/statement/result.hpp"
#include "pg/table/lookup.hpp"
#include "src/dedupe/idempotency.hpp"
#include "src/definition/stored_definition.hpp"
#include "src/outbox/outbox_tables.hpp"
#include "src/queue/queue_table.hpp"
#include "src/ring/ring_tables.hpp"
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

} // namespace stacksaga
