#include "src/saga/start_argument.hpp"

#include "core/saga/saga_state.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "src/common/limits.hpp"
#include "src/dedupe/fingerprint.hpp"

namespace stacksaga {

namespace {

constexpr std::array<std::string_view, 3> on_conflict_names{"use_existing", "fail",
                                                            "restart_if_failed"};

void require_object(Datum value, const char *argument) {
    Jsonb *jsonb = DatumGetJsonbP(value);
    if (JB_ROOT_IS_OBJECT(jsonb))
        return;
    ereport(ERROR,
            (errcode(pg::sg400), errmsg("argument \"%s\" must be a JSON object", argument),
             errdetail("The value is %s.", JB_ROOT_IS_SCALAR(jsonb) ? "a scalar" : "an array"),
             errhint("Pass '{}' for none.")));
}

Datum input_argument(const pg::Arguments &arguments) {
    arguments.require(1, "input");
    check_payload(arguments.datum(1), "input");
    return arguments.datum(1);
}

std::optional<std::string_view> key_of(const pg::Arguments &arguments) {
    const std::optional<std::string_view> key = arguments.optional_text(2);
    if (key)
        check_key(*key);
    return key;
}

OnConflict on_conflict_argument(const pg::Arguments &arguments) {
    const std::string_view name = arguments.required_text(3, "on_conflict");
    const std::optional<OnConflict> rule = core::enum_of<OnConflict>(on_conflict_names, name);
    if (!rule)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"on_conflict\" is not valid"),
                        errdetail("The value is \"%s\".", clip(name)),
                        errhint("Use use_existing, fail or restart_if_failed.")));
    return *rule;
}

std::optional<TimestampTz> run_at_argument(const pg::Arguments &arguments) {
    if (arguments.is_null(4))
        return std::nullopt;
    const TimestampTz run_at = DatumGetTimestampTz(arguments.datum(4));
    if (TIMESTAMP_NOT_FINITE(run_at))
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"run_at\" must be finite"),
                        errdetail("The value is %s.", DatumGetCString(DirectFunctionCall1(
                                                          timestamptz_out, arguments.datum(4)))),
                        errhint("Leave it out to start now.")));
    return run_at;
}

Datum headers_argument(const pg::Arguments &arguments) {
    arguments.require(6, "headers");
    check_payload(arguments.datum(6), "headers");
    require_object(arguments.datum(6), "headers");
    return arguments.datum(6);
}

void check_identity(const Start &start) {
    if (start.saga_id && start.key)
        ereport(ERROR, (errcode(pg::sg400), errmsg("key and saga_id exclude each other"),
                        errdetail("With a key the id is made from the saga's name and the key."),
                        errhint("Leave saga_id out.")));
    if (start.saga_id && start.on_conflict == OnConflict::restart_if_failed)
        ereport(ERROR, (errcode(pg::sg400), errmsg("restart_if_failed needs a key"),
                        errdetail("A new run gets an id that is made from the key; saga_id stands "
                                  "for one run."),
                        errhint("Give the saga a key instead of an id.")));
}

SagaTraits traits_argument(const pg::Arguments &arguments) {
    SagaTraits traits{.priority = priority_argument(arguments, 9)};
    traits.group_key = arguments.optional_text(10);
    if (traits.group_key)
        check_group_key(*traits.group_key, "group_key");
    arguments.require(11, "attributes");
    traits.attributes = checked_attributes(arguments.datum(11));
    return traits;
}

SagaTraits traits_of(const StartBatch &batch, int i) {
    SagaTraits traits{.priority = batch.priority};
    if (batch.group_keys.has(i)) {
        traits.group_key = pg::view_of_text(batch.group_keys.values[i]);
        check_group_key(*traits.group_key, "group_keys", i + 1);
    }
    if (batch.attributes.has(i))
        traits.attributes = checked_attributes(batch.attributes.values[i], i + 1);
    return traits;
}

/// An array with an element for each input; empty when it was left out.
pg::Elements array_beside(const pg::Arguments &arguments, int i, const char *name, Oid type,
                          const pg::Elements &inputs) {
    if (arguments.is_null(i))
        return {};
    const pg::Elements elements = pg::array_argument(arguments, i, name, type);
    pg::require_same_length(elements, name, inputs, "inputs");
    return elements;
}

[[noreturn]] void refuse_element(const char *argument, const char *problem, const char *hint) {
    ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"%s\" is not valid", argument),
                    errdetail("%s", problem), errhint("%s", hint)));
}

} // namespace

void check_key(std::string_view key) {
    check_encoding(key, "key");
    if (key.empty() || key.size() > key_bytes_max)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"key\" is not a valid key"),
                        errdetail("It has %zu bytes.", key.size()),
                        errhint("Use 1 to %d bytes, or NULL for no key.", key_bytes_max)));
}

Start start_argument(const pg::Arguments &arguments) {
    Start start{};
    start.now = pg::clock_now();
    start.saga = arguments.required_text(0, "saga");
    check_name(start.saga, "saga");
    start.input = input_argument(arguments);
    start.fingerprint = fingerprint_of(start.input);
    start.key = key_of(arguments);
    start.on_conflict = on_conflict_argument(arguments);
    start.run_at = run_at_argument(arguments);
    if (!arguments.is_null(5))
        start.deadline = pg::interval_length(arguments.datum(5), "deadline", true);
    start.headers = headers_argument(arguments);
    if (!arguments.is_null(7))
        start.saga_id = arguments.required_uuid(7, "saga_id");
    check_identity(start);
    if (!arguments.is_null(8))
        start.version = arguments.required_int4(8, "version");
    start.traits = traits_argument(arguments);
    return start;
}

StartBatch batch_argument(const pg::Arguments &arguments) {
    arguments.require(1, "inputs");
    const pg::Elements inputs = pg::array_argument(arguments, 1, "inputs", JSONBOID);
    return {.inputs = inputs,
            .keys = array_beside(arguments, 2, "keys", TEXTOID, inputs),
            .priority = priority_argument(arguments, 3),
            .group_keys = array_beside(arguments, 4, "group_keys", TEXTOID, inputs),
            .attributes = array_beside(arguments, 5, "attributes", JSONBOID, inputs)};
}

Start element_of(const StartBatch &batch, int i, std::string_view saga, TimestampTz now) {
    Start start{};
    start.now = now;
    start.saga = saga;
    start.on_conflict = OnConflict::use_existing;
    start.headers = DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"));
    if (!batch.inputs.has(i))
        refuse_element("inputs", psprintf("Element %d is NULL.", i + 1), "Pass '{}' for no input.");
    start.input = batch.inputs.values[i];
    check_payload(start.input, "inputs");
    start.fingerprint = fingerprint_of(start.input);
    start.traits = traits_of(batch, i);
    if (!batch.keys.has(i))
        return start;
    start.key = pg::view_of_text(batch.keys.values[i]);
    if (start.key->empty() || start.key->size() > key_bytes_max)
        refuse_element("keys", psprintf("Element %d has %zu bytes.", i + 1, start.key->size()),
                       psprintf("Use 1 to %d bytes, or NULL for no key.", key_bytes_max));
    return start;
}

} // namespace stacksaga
