
#include "src/saga/saga_tables.hpp"

#include "src/saga/saga_change.hpp"

namespace stacksaga {

namespace {

constexpr pg::Nulls nullable = pg::Nulls::allowed;
constexpr pg::Nulls not_null = pg::Nulls::refused;

constexpr pg::TableColumn token{"token", INT8OID, not_null, "ring_token"};
constexpr pg::TableColumn direction{"direction", TEXTOID, not_null, "step_direction"};

constexpr std::array saga_columns{
    pg::TableColumn{"saga_id", UUIDOID},
    token,
    pg::TableColumn{"ring_id", INT4OID},
    pg::TableColumn{"slot", INT4OID},
    pg::TableColumn{"definition_id", INT4OID},
    pg::TableColumn{"run", INT4OID},
    pg::TableColumn{"latest_run", INT4OID},
    pg::TableColumn{"priority", INT2OID},
    pg::TableColumn{"status", TEXTOID, not_null, "saga_status"},
    direction,
    pg::TableColumn{"failed_step", INT2OID, nullable},
    pg::TableColumn{"parked_step", INT2OID, nullable},
    pg::TableColumn{"parked_direction", TEXTOID, nullable, "step_direction"},
    pg::TableColumn{"compensation_requested", TEXTOID, nullable, "compensation_request"},
    pg::TableColumn{"deadline_at", TIMESTAMPTZOID, nullable},
    pg::TableColumn{"created_at", TIMESTAMPTZOID},
    pg::TableColumn{"updated_at", TIMESTAMPTZOID},
    pg::TableColumn{"finished_at", TIMESTAMPTZOID, nullable},
    pg::TableColumn{"suspended_at", TIMESTAMPTZOID, nullable},
    pg::TableColumn{"parent_id", UUIDOID, nullable},
    pg::TableColumn{"parent_step", INT2OID, nullable},
    pg::TableColumn{"key", TEXTOID, nullable},
    pg::TableColumn{"fingerprint", BYTEAOID},
    pg::TableColumn{"error", TEXTOID, nullable},
    pg::TableColumn{"group_key", TEXTOID, nullable},
    pg::TableColumn{"attributes", JSONBOID, nullable, nullptr, pg::Toasted::left},
    pg::TableColumn{"input", JSONBOID, not_null, nullptr, pg::Toasted::left},
    pg::TableColumn{"headers", JSONBOID, not_null, nullptr, pg::Toasted::left},
    pg::TableColumn{"parked_at", TIMESTAMPTZOID, nullable},
    pg::TableColumn{"deadline", INTERVALOID, nullable},
    pg::TableColumn{"remove_at", TIMESTAMPTZOID, nullable},
};
/// Matches finished sagas of a distributed trace: only their headers are read at the end of a saga.
bool is_traced(const pg::TableRow &row) {
    if (row.is_null(SagaColumn::finished_at))
        return false;
    const Datum headers = row.value(SagaColumn::headers);
    return JB_ROOT_COUNT(DatumGetJsonbP(headers)) > 0 &&
           DatumGetBool(
               DirectFunctionCall2(jsonb_exists, headers, CStringGetTextDatum("traceparent")));
}

constexpr std::array saga_indexes{
    pg::TableIndex{
        .name = "saga_pkey", .key = {SagaColumn::saga_id, SagaColumn::token}, .is_unique = true},
    pg::TableIndex{
        .name = "saga_finished",
        .key = {SagaColumn::ring_id, SagaColumn::slot, SagaColumn::direction, SagaColumn::remove_at,
                SagaColumn::finished_at},
        .predicate = "(finished_at IS NOT NULL)",
        .holds = [](const pg::TableRow &row) { return !row.is_null(SagaColumn::finished_at); }},
    pg::TableIndex{.name = "saga_created", .key = {SagaColumn::created_at, SagaColumn::saga_id}},
    pg::TableIndex{.name = "saga_listed",
                   .key = {SagaColumn::status, SagaColumn::definition_id, SagaColumn::created_at,
                           SagaColumn::saga_id}},
    pg::TableIndex{.name = "saga_key",
                   .key = {SagaColumn::key, SagaColumn::created_at, SagaColumn::saga_id},
                   .is_bytewise = true,
                   .predicate = "(key IS NOT NULL)",
                   .holds = [](const pg::TableRow &row) { return !row.is_null(SagaColumn::key); }},
    pg::TableIndex{
        .name = "saga_children",
        .key = {SagaColumn::parent_id, SagaColumn::parent_step, SagaColumn::run},
        .predicate = "(parent_id IS NOT NULL)",
        .holds = [](const pg::TableRow &row) { return !row.is_null(SagaColumn::parent_id); }},
    pg::TableIndex{.name = "saga_traced",
                   .key = {SagaColumn::finished_at, SagaColumn::saga_id},
                   .predicate = "((finished_at IS NOT NULL) AND (headers ? 'traceparent'::text))",
                   .holds = is_traced},
};
constexpr std::array saga_triggers{
    pg::TableTrigger{.name = "saga_transition", .before_update = apply_row_change}};

constexpr std::array attribute_columns{
    pg::TableColumn{"saga_id", UUIDOID},
    token,
    pg::TableColumn{"attribute", INT8OID},
    pg::TableColumn{"definition_id", INT4OID},
    pg::TableColumn{"status", TEXTOID, not_null, "saga_status"},
    pg::TableColumn{"created_at", TIMESTAMPTZOID},
};
constexpr std::array attribute_indexes{
    pg::TableIndex{
        .name = "saga_attribute_pkey",
        .key = {AttributeColumn::saga_id, AttributeColumn::attribute, AttributeColumn::token},
        .is_unique = true},
    pg::TableIndex{.name = "saga_attribute_listed",
                   .key = {AttributeColumn::attribute, AttributeColumn::status,
                           AttributeColumn::definition_id, AttributeColumn::created_at,
                           AttributeColumn::saga_id}},
};

constexpr std::array removed_columns{
    pg::TableColumn{"saga_id", UUIDOID},
    token,
    pg::TableColumn{"kept_since", TIMESTAMPTZOID},
    pg::TableColumn{"finished_at", TIMESTAMPTZOID},
    pg::TableColumn{"definition_id", INT4OID},
    pg::TableColumn{"latest_run", INT4OID},
    pg::TableColumn{"status", TEXTOID, not_null, "saga_status"},
    pg::TableColumn{"fingerprint", BYTEAOID},
};
constexpr std::array removed_indexes{
    pg::TableIndex{.name = "removed_saga_pkey",
                   .key = {RemovedColumn::saga_id, RemovedColumn::token},
                   .is_unique = true},
    pg::TableIndex{.name = "removed_saga_kept", .key = {RemovedColumn::kept_since}},
};

constexpr std::array effect_columns{
    pg::TableColumn{"saga_id", UUIDOID},
    pg::TableColumn{"step_no", INT2OID},
    direction,
    token,
    pg::TableColumn{"attempt", INT4OID},
    pg::TableColumn{"lease", INT8OID, nullable},
    pg::TableColumn{"started_at", TIMESTAMPTZOID},
    pg::TableColumn{"completed_at", TIMESTAMPTZOID},
    pg::TableColumn{"worker", TEXTOID, nullable},
    pg::TableColumn{"by_fallback", BOOLOID, nullable},
    pg::TableColumn{"settled_by", TEXTOID, nullable, "settled_by"},
    pg::TableColumn{"output", JSONBOID, nullable, nullptr, pg::Toasted::left},
    pg::TableColumn{"published", JSONBOID, nullable, nullptr, pg::Toasted::left},
};
constexpr std::array effect_indexes{
    pg::TableIndex{.name = "effect_pkey",
                   .key = {EffectColumn::saga_id, EffectColumn::step_no, EffectColumn::direction,
                           EffectColumn::token},
                   .is_unique = true},
};

constexpr std::array failure_columns{
    pg::TableColumn{"saga_id", UUIDOID},
    pg::TableColumn{"step_no", INT2OID},
    direction,
    pg::TableColumn{"attempt", INT4OID},
    token,
    pg::TableColumn{"lease", INT8OID, nullable},
    pg::TableColumn{"error_class", TEXTOID, not_null, "failure_class"},
    pg::TableColumn{"outcome_known", BOOLOID},
    pg::TableColumn{"by_fallback", BOOLOID, nullable},
    pg::TableColumn{"started_at", TIMESTAMPTZOID},
    pg::TableColumn{"finished_at", TIMESTAMPTZOID},
    pg::TableColumn{"worker", TEXTOID, nullable},
    pg::TableColumn{"sqlstate", TEXTOID, nullable},
    pg::TableColumn{"error", TEXTOID},
    pg::TableColumn{"crashes", INT4OID, nullable},
    pg::TableColumn{"error_detail", TEXTOID, nullable},
    pg::TableColumn{"error_context", TEXTOID, nullable},
};
constexpr std::array failure_indexes{
    pg::TableIndex{.name = "failure_pkey",
                   .key = {FailureColumn::saga_id, FailureColumn::step_no, FailureColumn::direction,
                           FailureColumn::attempt, FailureColumn::token},
                   .is_unique = true},
};

constexpr std::array release_columns{
    pg::TableColumn{"saga_id", UUIDOID},
    pg::TableColumn{"step_no", INT2OID},
    direction,
    pg::TableColumn{"attempt", INT4OID},
    token,
    pg::TableColumn{"lease", INT8OID, nullable},
    pg::TableColumn{"by_fallback", BOOLOID, nullable},
    pg::TableColumn{"started_at", TIMESTAMPTZOID},
    pg::TableColumn{"released_at", TIMESTAMPTZOID},
    pg::TableColumn{"worker", TEXTOID, nullable},
    pg::TableColumn{"reason", TEXTOID, nullable},
};
constexpr std::array release_indexes{
    pg::TableIndex{.name = "step_release_pkey",
                   .key = {ReleaseColumn::saga_id, ReleaseColumn::step_no, ReleaseColumn::direction,
                           ReleaseColumn::attempt, ReleaseColumn::token},
                   .is_unique = true},
};

} // namespace

constinit pg::Table saga_table{
    {.name = "saga", .columns = saga_columns, .indexes = saga_indexes, .triggers = saga_triggers}};
constinit pg::Table attribute_table{
    {.name = "saga_attribute", .columns = attribute_columns, .indexes = attribute_indexes}};
constinit pg::Table removed_table{
    {.name = "removed_saga", .columns = removed_columns, .indexes = removed_indexes}};
constinit pg::Table effect_table{
    {.name = "effect", .columns = effect_columns, .indexes = effect_indexes}};
constinit pg::Table failure_table{
    {.name = "failure", .columns = failure_columns, .indexes = failure_indexes}};
constinit pg::Table release_table{
    {.name = "step_release", .columns = release_columns, .indexes = release_indexes}};

} // namespace stacksaga
