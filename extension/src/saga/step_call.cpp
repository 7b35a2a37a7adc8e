#include "src/saga/step_call.hpp"

#include "core/saga/saga_state.hpp"

#include "pg/statement/function.hpp"
#include "src/common/limits.hpp"

namespace stacksaga {

namespace {

constexpr std::string_view fallback_suffix = ":fallback";
// A uuid, a step's number, a direction, two colons, the fallback's suffix.
constexpr size_t key_size_max = 36 + 6 + 16 + 2 + fallback_suffix.size();

/// Writes by hand, since uuid_out() and psprintf() would cost as much as the rest of a call.
/// Returns its end.
char *write_key(char *at, const pg_uuid_t &saga_id, int16 step_no, core::Direction direction,
                bool by_fallback) {
    static constexpr std::string_view digits = "0123456789abcdef";
    for (size_t i = 0; i < UUID_LEN; ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = digits[saga_id.data[i] >> 4];
        *at++ = digits[saga_id.data[i] & 0xf];
    }
    *at++ = ':';
    at += pg_itoa(step_no, at);
    *at++ = ':';
    const std::string_view name = core::name_of(direction);
    at = std::copy(name.begin(), name.end(), at);
    return by_fallback ? std::copy(fallback_suffix.begin(), fallback_suffix.end(), at) : at;
}

text *key_text(const StepCall &call) {
    auto *key = static_cast<text *>(palloc(VARHDRSZ + key_size_max));
    const char *end =
        write_key(VARDATA(key), call.saga_id, call.step->no, call.direction, call.by_fallback);
    SET_VARSIZE(key, end - reinterpret_cast<char *>(key));
    return key;
}

} // namespace

const char *idempotency_key_of(const pg_uuid_t &saga_id, int16 step_no, core::Direction direction,
                               bool by_fallback) {
    auto *key = static_cast<char *>(palloc(key_size_max + 1));
    *write_key(key, saga_id, step_no, direction, by_fallback) = '\0';
    return key;
}

void fill_step_call(const StepCall &call, Datum *values, bool *nulls, int claim_columns) {
    std::string_view direction = core::name_of(call.direction);
    auto *saga_id = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t)));
    *saga_id = call.saga_id;
    memset(nulls, 0, sizeof(bool) * static_cast<size_t>(step_call_columns + claim_columns));
    values[0] = UUIDPGetDatum(saga_id);
    values[1] = PointerGetDatum(pg::make_text(call.saga));
    values[2] = PointerGetDatum(pg::make_text(call.step->name));
    values[3] = PointerGetDatum(pg::make_text(direction));
    values[4] = Int32GetDatum(call.attempt);
    values[5] = call.input;
    values[6] = call.results;
    values[7] = PointerGetDatum(key_text(call));
    values[8] = call.headers;
    values[9] = TimestampTzGetDatum(call.deadline.value_or(0));
    nulls[9] = !call.deadline.has_value();
    const int last = columns_before_claim + claim_columns;
    values[last] = BoolGetDatum(call.by_fallback);
    values[last + 1] = TimestampTzGetDatum(call.claimed_at.value_or(0));
    nulls[last + 1] = !call.claimed_at.has_value();
}

Datum step_call_datum(const StepCall &call) {
    TupleDesc descriptor = lookup_rowtype_tupdesc(type_of_schema("step_call"), -1);
    Datum values[step_call_columns];
    bool nulls[step_call_columns];
    fill_step_call(call, values, nulls);
    const Datum result = HeapTupleGetDatum(heap_form_tuple(descriptor, values, nulls));
    ReleaseTupleDesc(descriptor);
    return result;
}

namespace {

const char *describe(const void *owner) {
    const auto &definition = *static_cast<const Definition *>(owner);
    return psprintf("Saga \"%s\", version %d, was defined by role", printable(definition.saga),
                    definition.version);
}

} // namespace

Datum call_handler(const Definition &definition, const Step &step, const FunctionRef &function,
                   HandlerKind kind, Datum call, bool *isnull) {
    const HandlerCaller caller{.definer = definition.definer,
                               .search_path = definition.functions_of(step).search_path,
                               .describe = describe,
                               .owner = &definition,
                               .remedy = "define_saga() with the same content"};
    return call_as_definer(caller, function, kind, call, isnull);
}

} // namespace stacksaga
