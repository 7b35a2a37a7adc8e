#include "src/saga/step_call.hpp"

#include "core/ring/token.hpp"
#include "core/saga/saga.hpp"
#include "core/saga/saga_engine.hpp"
#include "core/saga/saga_state.hpp"
#include "core/time/length.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/fault_point.hpp"
#include "pg/random.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/outbox/outbox.hpp"

namespace stacksaga {

namespace {

JsonbValue json_value(const Output &output) {
    JsonbValue value{};
    if (output.is_null) {
        value.type = jbvNull;
        return value;
    }
    Jsonb *json = DatumGetJsonbP(output.value);
    if (JB_ROOT_IS_SCALAR(json)) {
        JsonbExtractScalar(&json->root, &value);
    } else {
        value.type = jbvBinary;
        value.val.binary.data = &json->root;
        value.val.binary.len = static_cast<int>(VARSIZE(json) - VARHDRSZ);
    }
    return value;
}

JsonbValue json_key(std::string_view name) {
    JsonbValue key{};
    key.type = jbvString;
    key.val.string.val = const_cast<char *>(name.data());
    key.val.string.len = static_cast<int>(name.size());
    return key;
}

/// The outputs from `first` on as an object.
Jsonb *object_of(const Saga &saga, size_t first) {
    JsonbParseState *state = nullptr;
    pushJsonbValue(&state, WJB_BEGIN_OBJECT, nullptr);
    for (size_t i = first; i < saga.outputs.size(); ++i) {
        JsonbValue key = json_key(saga.definition->step(saga.outputs[i].step_no).name);
        JsonbValue value = json_value(saga.outputs[i]);
        pushJsonbValue(&state, WJB_KEY, &key);
        pushJsonbValue(&state, WJB_VALUE, &value);
    }
    return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, nullptr));
}

Jsonb *concatenation(Jsonb *one, Jsonb *other) {
    return DatumGetJsonbP(
        DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(one), JsonbPGetDatum(other)));
}

/// Adds the outputs that were recorded since. In memory of its own, since the garbage is many times
/// as large as the results, and a transaction may run a thousand steps of a saga.
void add_new(Saga &saga) {
    MemoryContext scratch =
        AllocSetContextCreate(CurrentMemoryContext, "stacksaga results", ALLOCSET_DEFAULT_SIZES);
    Jsonb *before = saga.results;
    pg::in_context(scratch, [&] {
        Jsonb *added = object_of(saga, saga.result_count);
        Jsonb *all = before == nullptr ? added : concatenation(before, added);
        saga.results = static_cast<Jsonb *>(saga.memory.allocate(saga.memory.owner, VARSIZE(all)));
        memcpy(saga.results, all, VARSIZE(all));
    });
    MemoryContextDelete(scratch);
    if (before != nullptr)
        pfree(before);
    saga.result_count = saga.outputs.size();
}

} // namespace

Datum step_results(Saga &saga) {
    core::require_effects(saga);
    FAULT_POINT("read: results", saga.id);
    if (saga.results == nullptr || saga.result_count < saga.outputs.size())
        add_new(saga);
    return JsonbPGetDatum(saga.results);
}

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

// ----------------------------------------------------------------------------------- message steps

std::string_view utc_text(TimestampTz time) {
    pg_tm tm{};
    fsec_t fraction;
    if (timestamp2tm(time, nullptr, &tm, &fraction, nullptr, nullptr) != 0)
        ereport(ERROR,
                (errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE), errmsg("timestamp out of range")));
    tm.tm_isdst = 1; // the offset is known
    auto *text = static_cast<char *>(palloc(MAXDATELEN + 1));
    EncodeDateTime(&tm, fraction, true, 0, nullptr, USE_XSD_DATES, text);
    return text;
}

namespace {

using core::Direction;

// The lease is text: JavaScript's numbers do not hold it.
constinit pg::Statement make_command{
    "SELECT pg_catalog.jsonb_build_object('saga_id', $1::uuid, 'saga', $2::text, 'step', $3::text,"
    "         'direction', $4::text, 'attempt', $5::integer, 'input', $6::jsonb,"
    "         'results', $7::jsonb, 'idempotency_key', $8::text, 'deadline', $9::text,"
    "         'lease', $10::bigint::text, 'by_fallback', $11::boolean)"};

Datum command_of(Saga &saga, const Step &step, const Work &attempt) {
    std::string_view direction = core::name_of(attempt.direction);
    pg::Rows rows = make_command.run(
        pg::param(saga.id), pg::param(saga.definition->saga), pg::param(step.name),
        pg::param(direction), pg::param(attempt.attempt), pg::param_datum(JSONBOID, saga.input),
        pg::param_datum(JSONBOID, step_results(saga)),
        pg::param(std::string_view{
            idempotency_key_of(saga.id, step.no, attempt.direction, attempt.falling_back)}),
        pg::param(utc_text(core::attempt_deadline(saga, step, attempt.direction))),
        pg::param(*attempt.lease), pg::param(attempt.falling_back));
    return rows.value(0);
}

} // namespace

std::string_view topic_of(const Step &step, Direction direction, bool falling_back) {
    if (direction == Direction::act)
        return falling_back ? step.fallback_queue : step.topic;
    return falling_back && !step.fallback_compensation_topic.empty()
               ? step.fallback_compensation_topic
               : step.compensation_topic;
}

void run_message_step(Saga &saga, const Step &step, const Work &work, std::string_view worker) {
    Work attempt = work;
    attempt.attempt = work.attempt + 1;
    attempt.lease = core::make_lease(attempt.attempt, attempt.direction, pg::random_bits());
    attempt.worker = worker;
    core::attempt_begins(saga);
    const Datum command = command_of(saga, step, attempt);
    saga.call_bytes = VARSIZE_ANY(DatumGetPointer(command));
    publish_message(saga.ring_id, {.topic = topic_of(step, attempt.direction, attempt.falling_back),
                                   .key = std::string_view{uuid_text(saga.id)},
                                   .type = step.name,
                                   .payload = command,
                                   .headers = saga.headers,
                                   .message_id = command_id(uuid_text(saga.id),
                                                            psprintf(INT64_FORMAT, *attempt.lease)),
                                   .deliver_at = std::nullopt});
    CRASH_POINT("message step: published, does not wait");
    const TimestampTz until = core::time_plus(saga.now, step.timeout);
    core::claim_work(saga, attempt, until, until);
}

} // namespace stacksaga
