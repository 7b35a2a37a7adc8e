#include "src/saga/step_call.hpp"

#include "pg/function.hpp"

namespace stacksaga {

const char *idempotency_key_of(const pg_uuid_t &saga_id, int16 step_no, core::Direction direction) {
    char *id = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(&saga_id)));
    return psprintf("%s:%d:%s", id, step_no, core::name_of(direction).data());
}

void fill_step_call(const StepCall &call, Datum *values, bool *nulls) {
    std::string_view direction = core::name_of(call.direction);
    const char *key = idempotency_key_of(call.saga_id, call.step->no, call.direction);
    auto *saga_id = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t)));
    *saga_id = call.saga_id;
    memset(nulls, 0, sizeof(bool) * step_call_columns);
    values[0] = UUIDPGetDatum(saga_id);
    values[1] = PointerGetDatum(pg::make_text(call.saga));
    values[2] = PointerGetDatum(pg::make_text(call.step->name));
    values[3] = PointerGetDatum(pg::make_text(direction));
    values[4] = Int32GetDatum(call.attempt);
    values[5] = call.input;
    values[6] = call.results;
    values[7] = CStringGetTextDatum(key);
    values[8] = call.headers;
    values[9] = TimestampTzGetDatum(call.deadline.value_or(0));
    nulls[9] = !call.deadline.has_value();
}

namespace {

Datum step_call_datum(const StepCall &call) {
    TupleDesc descriptor = lookup_rowtype_tupdesc_copy(type_of_schema("step_call"), -1);
    Datum values[step_call_columns];
    bool nulls[step_call_columns];
    fill_step_call(call, values, nulls);
    return HeapTupleGetDatum(heap_form_tuple(descriptor, values, nulls));
}

} // namespace

Datum call_handler(const Definition &definition, const FunctionRef &function, HandlerKind kind,
                   const StepCall &call, bool *isnull) {
    const HandlerCaller caller{.definer = definition.definer,
                               .search_path = definition.functions_of(*call.step).search_path,
                               .described =
                                   psprintf("Saga \"%.*s\", version %d, was defined by role",
                                            static_cast<int>(definition.saga.size()),
                                            definition.saga.data(), definition.version),
                               .remedy = "define_saga() with the same content"};
    return call_as_definer(caller, function, kind, step_call_datum(call), isnull);
}

} // namespace stacksaga
