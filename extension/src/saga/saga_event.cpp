// Events of a saga's life: a message for each change of status, where its definition names a topic.
// A message is appended to the log before the row is changed, by the same command: both are there,
// or neither is.
#include "src/saga/saga_event.hpp"

#include "core/saga/saga_state.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/statement/query.hpp"
#include "src/common/limits.hpp"
#include "src/definition/stored_definition.hpp"
#include "src/outbox/outbox.hpp"
#include "src/saga/saga_tables.hpp"
#include "src/saga/step_call.hpp"

namespace stacksaga {

namespace {

JsonbValue json_text(std::string_view text) {
    JsonbValue value{};
    value.type = jbvString;
    value.val.string.val = const_cast<char *>(text.data());
    value.val.string.len = static_cast<int>(text.size());
    return value;
}

JsonbValue json_text(std::optional<std::string_view> text) {
    return text ? json_text(*text) : JsonbValue{.type = jbvNull, .val = {}};
}

JsonbValue json_number(int32 number) {
    JsonbValue value{};
    value.type = jbvNumeric;
    value.val.numeric = DatumGetNumeric(DirectFunctionCall1(int4_numeric, Int32GetDatum(number)));
    return value;
}

JsonbValue json_object(std::optional<Datum> object) {
    const Datum datum = object ? *object : DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"));
    Jsonb *json = DatumGetJsonbP(datum);
    JsonbValue value{};
    value.type = jbvBinary;
    value.val.binary.data = &json->root;
    value.val.binary.len = static_cast<int>(VARSIZE(json) - VARHDRSZ);
    return value;
}

/// The attempts of a step in a direction.
struct StepPlace {
    int16 step_no;
    std::string_view direction;
};

/// The step that an event names: the parked one, else the failed one. An UPDATE by hand may name
/// one that the definition does not have.
std::optional<StepPlace> step_of(const Definition &definition, const pg::TableRow &saga) {
    using Column = SagaColumn;
    constexpr std::string_view act = core::name_of(core::Direction::act);
    const auto place = [&](Column column, std::string_view direction) -> std::optional<StepPlace> {
        const int16 no = saga.int2(column);
        if (no < 1 || static_cast<size_t>(no) > definition.steps.size())
            return std::nullopt;
        return StepPlace{no, direction};
    };
    if (!saga.is_null(Column::parked_step))
        return place(Column::parked_step,
                     saga.optional_text(Column::parked_direction).value_or(act));
    if (!saga.is_null(Column::failed_step))
        return place(Column::failed_step, act);
    return std::nullopt;
}

/// The class of the latest failure of the step; nothing where none failed.
std::optional<std::string_view> error_class_of(const pg::TableRow &saga, const StepPlace &step) {
    const std::array key{pg::param(saga.uuid(SagaColumn::saga_id)), pg::param(step.step_no),
                         pg::param(step.direction)};
    const std::span<pg::TableRow> failures = failure_table.find(
        {.key = key,
         .implied = pg::assign(FailureColumn::token, pg::param(saga.int8(SagaColumn::token)))});
    if (failures.empty())
        return std::nullopt;
    return failures.back().text(FailureColumn::error_class);
}

/// An UPDATE by hand leaves the instant of the change before.
TimestampTz changed_at(const pg::TableRow &before, const pg::TableRow &after) {
    const TimestampTz at = after.time(SagaColumn::updated_at);
    return at == before.time(SagaColumn::updated_at) ? pg::clock_now() : at;
}

Datum payload_of(const Definition &definition, const pg::TableRow &saga, TimestampTz at) {
    using Column = SagaColumn;
    std::optional<std::string_view> name, error_class;
    if (const std::optional<StepPlace> step = step_of(definition, saga)) {
        name = definition.step(step->step_no).name;
        error_class = error_class_of(saga, *step);
    }
    const std::string_view id{uuid_text(saga.uuid(Column::saga_id))};
    std::array members{
        std::pair{"saga", json_text(definition.saga)},
        std::pair{"key", json_text(saga.optional_text(Column::key))},
        std::pair{"saga_id", json_text(id)},
        std::pair{"run", json_number(saga.int4(Column::run))},
        std::pair{"version", json_number(definition.version)},
        std::pair{"status", json_text(saga.text(Column::status))},
        std::pair{"direction", json_text(saga.text(Column::direction))},
        std::pair{"step", json_text(name)},
        std::pair{"error_class", json_text(error_class)},
        std::pair{"attributes", json_object(saga.optional(Column::attributes))},
        std::pair{"started_at", json_text(utc_text(saga.time(Column::created_at)))},
        std::pair{"at", json_text(utc_text(at))},
    };
    JsonbParseState *state = nullptr;
    pushJsonbValue(&state, WJB_BEGIN_OBJECT, nullptr);
    for (auto &[member, value] : members) {
        JsonbValue key = json_text(std::string_view{member});
        pushJsonbValue(&state, WJB_KEY, &key);
        pushJsonbValue(&state, WJB_VALUE, &value);
    }
    return JsonbPGetDatum(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, nullptr)));
}

} // namespace

void publish_event(const pg::TableRow &before, const pg::TableRow &after) {
    using Column = SagaColumn;
    const Definition &definition = load_definition(after.int4(Column::definition_id));
    if (definition.events_topic.empty())
        return;
    const std::string_view id{uuid_text(after.uuid(Column::saga_id))};
    const std::string_view status = after.text(Column::status);
    const NewMessage event{
        .topic = definition.events_topic,
        .key = after.optional_text(Column::key).value_or(id),
        .type = psprintf("saga.%.*s", static_cast<int>(status.size()), status.data()),
        .payload = payload_of(definition, after, changed_at(before, after)),
        .headers = after.value(Column::headers),
        .message_id = std::nullopt,
        .deliver_at = std::nullopt};
    publish_message(after.int4(Column::ring_id), event);
    CRASH_POINT("saga: event published, status not written");
}

} // namespace stacksaga
