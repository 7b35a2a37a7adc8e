#include "src/saga/saga_change.hpp"

#include "core/saga/saga_state.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/counters.hpp"
#include "src/common/limits.hpp"
#include "src/ring/fence.hpp"
#include "src/saga/saga_event.hpp"
#include "src/saga/saga_tables.hpp"
#include "src/saga/saga_traits.hpp"

namespace stacksaga {

namespace {

struct SagaChange {
    pg_uuid_t id;
    int64 token;
    bool is_child;
    bool has_attributes;
    core::Status from;
    core::Direction from_direction;
    core::Status to;
    core::Direction to_direction;
};

constinit pg::Statement insert_parked{
    "INSERT INTO stacksaga.parked_saga VALUES ($1, $2::stacksaga.ring_token, $3)"
    " ON CONFLICT (saga_id, token) DO UPDATE SET since = excluded.since"};
constinit pg::Statement delete_parked{
    "DELETE FROM stacksaga.parked_saga"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

void require_allowed(const SagaChange &c) {
    if (core::may_change(c.from, c.from_direction, c.to, c.to_direction, c.is_child))
        return;
    ereport(ERROR, (errcode(pg::sg409),
                    errmsg("saga %s may not change from %s to %s", uuid_text(c.id),
                           core::name_of(c.from).data(), core::name_of(c.to).data()),
                    errdetail("Its direction is %s and would be %s.",
                              core::name_of(c.from_direction).data(),
                              core::name_of(c.to_direction).data()),
                    errhint("saga_transitions() lists the changes that are allowed.")));
}

void count(const SagaChange &c) {
    if (c.from_direction != c.to_direction)
        count_event(Counter::sagas_compensated);
    if (c.from == c.to)
        return;
    count_saga(c.from, -1);
    count_saga(c.to, 1);
    if (c.to == core::Status::completed)
        count_event(Counter::sagas_completed);
    else if (c.to == core::Status::failed)
        count_event(Counter::sagas_failed);
    else if (c.to == core::Status::parked)
        count_event(Counter::sagas_parked);
}

/// Adds the saga to the list of parked sagas, or removes it.
void note_parked(const pg_uuid_t &saga_id, int64 saga_token, bool is_parked) {
    const pg::Param id = pg::param(saga_id);
    const pg::Param token = pg::param(saga_token);
    pg::as_owner([&] {
        pg::with_spi([&] {
            if (is_parked)
                insert_parked.touch(id, token, pg::param_time(pg::clock_now()));
            else
                delete_parked.touch(id, token);
        });
    });
}

core::Status status_in(const pg::TableRow &row) {
    return *core::status_of(row.text(SagaColumn::status));
}

core::Direction direction_in(const pg::TableRow &row) {
    return *core::direction_of(row.text(SagaColumn::direction));
}

SagaChange change_between(const pg::TableRow &before, const pg::TableRow &after) {
    return {.id = before.uuid(SagaColumn::saga_id),
            .token = before.int8(SagaColumn::token),
            .is_child = !before.is_null(SagaColumn::parent_id),
            .has_attributes = !before.is_null(SagaColumn::attributes),
            .from = status_in(before),
            .from_direction = direction_in(before),
            .to = status_in(after),
            .to_direction = direction_in(after)};
}

} // namespace

void apply_row_change(const pg::TableRow &before, const pg::TableRow &after) {
    const SagaChange change = change_between(before, after);
    require_allowed(change);
    if (change.from == change.to && change.from_direction == change.to_direction)
        return;
    if ((change.from == core::Status::parked) != (change.to == core::Status::parked))
        note_parked(change.id, change.token, change.to == core::Status::parked);
    if (change.has_attributes && change.from != change.to)
        change_attribute_rows(change.id, change.to);
    count(change);
    publish_event(before, after);
}

// ----------------------------------------------------------------------- the state machines in SQL

namespace {

pg::Column text(std::string_view s) {
    return pg::of(PointerGetDatum(pg::make_text(s)));
}

std::string_view column_text(HeapTuple tuple, TupleDesc descriptor, const char *name) {
    bool isnull;
    Datum d = heap_getattr(tuple, SPI_fnumber(descriptor, name), descriptor, &isnull);
    return isnull ? std::string_view{} : pg::view_of_text(d);
}

/// The columns of a saga that change while it runs; all others say which saga it is.
constexpr std::array<std::string_view, 14> changing_columns{
    "status",       "direction",   "failed_step", "parked_step", "parked_direction",
    "updated_at",   "finished_at", "latest_run",  "error",       "compensation_requested",
    "suspended_at", "deadline_at", "parked_at",   "remove_at"};

/// Only adopt_ring(), which holds the fence, changes its ring and the slot there.
bool is_moved_under_fence(std::string_view column, HeapTuple before, TupleDesc descriptor) {
    if (column != "ring_id" && column != "slot")
        return false;
    const auto field = [&](const char *name) {
        bool isnull;
        return DatumGetInt32(
            heap_getattr(before, SPI_fnumber(descriptor, name), descriptor, &isnull));
    };
    return holds_slot_exclusively(field("ring_id"), field("slot"));
}

bool is_finished(HeapTuple tuple, TupleDesc descriptor) {
    const std::optional<core::Status> status =
        core::status_of(column_text(tuple, descriptor, "status"));
    return status && core::is_final(*status);
}

/// Erased by redact_saga(), once the saga has finished.
bool is_erased(int number, std::string_view column, HeapTuple before, HeapTuple after,
               TupleDesc descriptor) {
    const char *value = SPI_getvalue(after, descriptor, number);
    const std::string_view text = value == nullptr ? std::string_view{} : value;
    const bool is_empty = column == "input" ? text == "{\"redacted\": true}"
                          : column == "headers" || column == "attributes" ? text == "{}"
                          : column == "group_key"                         ? value == nullptr
                                                                          : false;
    return is_empty && is_finished(before, descriptor);
}

bool is_same(const FormData_pg_attribute &column, Datum a, bool a_isnull, Datum b, bool b_isnull) {
    if (a_isnull || b_isnull)
        return a_isnull && b_isnull;
    // As stored first: a large value is fetched only if it was written again.
    return datumIsEqual(a, b, column.attbyval, column.attlen) ||
           datum_image_eq(a, b, column.attbyval, column.attlen);
}

char *value_text(HeapTuple tuple, TupleDesc descriptor, int number) {
    bool isnull;
    const Datum datum = heap_getattr(tuple, number, descriptor, &isnull);
    if (!isnull && SPI_gettypeid(descriptor, number) == JSONBOID && !payload_fits(datum))
        return psprintf("a value of %zu bytes", toast_raw_datum_size(datum));
    char *value = SPI_getvalue(tuple, descriptor, number);
    return value != nullptr ? pstrdup(clip(value)) : pstrdup("NULL");
}

/// SG409: the columns that identify a saga never change.
void require_same_saga(HeapTuple before, HeapTuple after, TupleDesc descriptor) {
    for (int i = 0; i < descriptor->natts; ++i) {
        const FormData_pg_attribute &column = *TupleDescAttr(descriptor, i);
        const int number = i + 1;
        bool was_null, is_null;
        const Datum was = heap_getattr(before, number, descriptor, &was_null);
        const Datum is = heap_getattr(after, number, descriptor, &is_null);
        const std::string_view name{NameStr(column.attname)};
        if (column.attisdropped || is_same(column, was, was_null, is, is_null) ||
            std::ranges::find(changing_columns, name) != changing_columns.end() ||
            is_moved_under_fence(name, before, descriptor) ||
            is_erased(number, name, before, after, descriptor))
            continue;
        bool isnull;
        const Datum id =
            heap_getattr(before, SPI_fnumber(descriptor, "saga_id"), descriptor, &isnull);
        ereport(ERROR,
                (errcode(pg::sg409),
                 errmsg("column \"%s\" of saga %s may not change", name.data(),
                        DatumGetCString(DirectFunctionCall1(uuid_out, id))),
                 errdetail("It is %s and would be %s.", value_text(before, descriptor, number),
                           value_text(after, descriptor, number)),
                 name == "ring_id" || name == "slot"
                     ? errhint("A saga belongs to its ring; stacksaga.adopt_ring() moves the work "
                               "of a ring whose nodes are dead.")
                     : errhint("Cancel the saga with stacksaga.cancel_saga() and start another.")));
    }
}

/// The tuple in the order of SagaColumn.
pg::TableRow row_of(HeapTuple tuple, TupleDesc descriptor) {
    const std::span<const pg::TableColumn> columns = saga_table.description().columns;
    auto *values = static_cast<Datum *>(palloc(sizeof(Datum) * columns.size()));
    auto *nulls = static_cast<bool *>(palloc(columns.size()));
    for (size_t i = 0; i < columns.size(); ++i)
        values[i] =
            heap_getattr(tuple, SPI_fnumber(descriptor, columns[i].name), descriptor, &nulls[i]);
    return {{values, columns.size()}, {nulls, columns.size()}};
}

} // namespace

// saga_transitions() -> TABLE(from_status, to_status, direction, sentence, of_child)
STACKSAGA_FUNCTION(saga_transitions) {
    pg::ResultSet result(fcinfo);
    for (const core::SagaTransition &t : core::saga_transitions)
        result.add(text(core::name_of(t.from)), text(core::name_of(t.to)),
                   text(core::name_of(t.direction)), text(t.sentence),
                   pg::of(BoolGetDatum(t.of_child)));
    return result.finish();
}

// outcome_rules() -> TABLE(rule, direction, error_class, attempts_left, has_verify, irreversible,
//                          outcome, sentence, in_doubt, on_failure)
STACKSAGA_FUNCTION(outcome_rules) {
    pg::ResultSet result(fcinfo);
    int32 number = 0;
    for (const core::OutcomeRule &r : core::outcome_rules)
        result.add(pg::of(Int32GetDatum(++number)), text(core::name_of(r.direction)),
                   text(core::name_of(r.failure_class)), text(core::name_of(r.attempts_left)),
                   text(core::name_of(r.has_verify)), text(core::name_of(r.irreversible)),
                   text(core::name_of(r.outcome)), text(r.sentence),
                   text(core::name_of(r.in_doubt)), text(core::name_of(r.on_failure)));
    return result.finish();
}

// BEFORE UPDATE on stacksaga.saga FOR EACH ROW. Where the engine accesses the table directly it
// does not fire, and apply_row_change() stands in for it.
STACKSAGA_FUNCTION(enforce_transition) {
    if (!CALLED_AS_TRIGGER(fcinfo))
        ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
                        errmsg("enforce_transition() can only be called as a trigger")));
    auto *trigger = reinterpret_cast<TriggerData *>(fcinfo->context);
    TupleDesc descriptor = RelationGetDescr(trigger->tg_relation);
    HeapTuple before = trigger->tg_trigtuple, after = trigger->tg_newtuple;

    require_same_saga(before, after, descriptor);
    // The CHECK constraints name the mistake.
    if (!core::status_of(column_text(after, descriptor, "status")) ||
        !core::direction_of(column_text(after, descriptor, "direction")))
        return PointerGetDatum(after);
    pg::as_owner([&] {
        pg::with_spi(
            [&] { apply_row_change(row_of(before, descriptor), row_of(after, descriptor)); });
    });
    return PointerGetDatum(after);
}

} // namespace stacksaga
