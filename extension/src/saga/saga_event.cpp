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

constinit pg::Statement make_event{
    "SELECT pg_catalog.jsonb_build_object('saga', $1::text, 'key', $2::text, 'saga_id', $3::uuid,"
    "         'run', $4::integer, 'version', $5::integer, 'status', $6::text,"
    "         'direction', $7::text, 'step', $8::text, 'error_class', $9::text,"
    "         'attributes', coalesce($10::jsonb, '{}'), 'started_at', $11::text, 'at', $12::text)"};

/// The attempts of a step in a direction.
struct StepPlace {
    int16 step_no;
    std::string_view direction;
};

/// The step that an event names: the parked one, else the failed one.
std::optional<StepPlace> step_of(const pg::TableRow &saga) {
    using Column = SagaColumn;
    if (!saga.is_null(Column::parked_step))
        return StepPlace{saga.int2(Column::parked_step), saga.text(Column::parked_direction)};
    if (!saga.is_null(Column::failed_step))
        return StepPlace{saga.int2(Column::failed_step), core::name_of(core::Direction::act)};
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
    if (const std::optional<StepPlace> step = step_of(saga)) {
        name = definition.step(step->step_no).name;
        error_class = error_class_of(saga, *step);
    }
    const std::optional<Datum> attributes = saga.optional(Column::attributes);
    const pg::Rows rows = make_event.run(
        pg::param(definition.saga), pg::param(saga.optional_text(Column::key)),
        pg::param(saga.uuid(Column::saga_id)), pg::param(saga.int4(Column::run)),
        pg::param(definition.version), pg::param(saga.text(Column::status)),
        pg::param(saga.text(Column::direction)), pg::param(name), pg::param(error_class),
        attributes ? pg::param_datum(JSONBOID, *attributes) : pg::param_null(JSONBOID),
        pg::param(utc_text(saga.time(Column::created_at))), pg::param(utc_text(at)));
    return rows.value(0);
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
