
#include "src/saga/saga_tables.hpp"

#include "core/queue/claim_order.hpp"
#include "core/saga/work_purpose.hpp"

#include "src/handler/catalog_watch.hpp"
#include "src/saga/saga_change.hpp"

namespace stacksaga {

namespace {

constexpr pg::Nulls nullable = pg::Nulls::allowed;
constexpr pg::Nulls not_null = pg::Nulls::refused;

constexpr pg::TableColumn token{"token", INT8OID, not_null, "ring_token"};
constexpr pg::TableColumn direction{"direction", TEXTOID, not_null, "step_direction"};

enum class DefinitionColumn : uint8 { definition_id = 1, saga };
constexpr std::array definition_columns{
    pg::TableColumn{"definition_id", INT4OID},
    pg::TableColumn{"saga", TEXTOID},
};
constexpr std::array definition_indexes{
    pg::TableIndex{.name = "saga_definition_current",
                   .key = {DefinitionColumn::saga},
                   .is_unique = true,
                   .predicate = "is_current"},
};

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
};
/// Of a distributed trace, and finished: the only sagas whose headers an end looks at.
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
        .key = {SagaColumn::ring_id, SagaColumn::slot, SagaColumn::direction,
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

constexpr std::array work_columns{
    pg::TableColumn{"saga_id", UUIDOID},
    pg::TableColumn{"step_no", INT2OID},
    pg::TableColumn{"rank", INT2OID},
    direction,
    token,
    pg::TableColumn{"ring_id", INT4OID},
    pg::TableColumn{"slot", INT4OID},
    pg::TableColumn{"due_at", TIMESTAMPTZOID},
    pg::TableColumn{"attempt", INT4OID},
    pg::TableColumn{"attempt_base", INT4OID},
    pg::TableColumn{"verify_attempts", INT4OID, nullable},
    pg::TableColumn{"lease", INT8OID, nullable},
    pg::TableColumn{"lease_until", TIMESTAMPTZOID, nullable},
    pg::TableColumn{"started_at", TIMESTAMPTZOID, nullable},
    pg::TableColumn{"resume_at", TIMESTAMPTZOID, nullable},
    pg::TableColumn{"purpose", ANYENUMOID, not_null, "work_purpose"},
    pg::TableColumn{"verifying", BOOLOID},
    pg::TableColumn{"falling_back", BOOLOID},
    pg::TableColumn{"deferred", BOOLOID},
    pg::TableColumn{"queue", TEXTOID, nullable},
    pg::TableColumn{"group_key", TEXTOID},
    pg::TableColumn{"worker", TEXTOID, nullable},
    pg::TableColumn{"postponed", INT2OID, nullable},
};

bool is_for_worker(const pg::TableRow &row) {
    return row.is_null(WorkColumn::queue) || row.boolean(WorkColumn::verifying) ||
           !row.is_null(WorkColumn::lease_until);
}
/// A service may claim it when it is due.
bool waits_for_service(const pg::TableRow &row) {
    return !row.is_null(WorkColumn::queue) && !row.boolean(WorkColumn::verifying) &&
           row.is_null(WorkColumn::lease_until);
}
bool has_group(const pg::TableRow &row) {
    return !row.text(WorkColumn::group_key).empty();
}
bool has_usual_rank(const pg::TableRow &row) {
    return row.int2(WorkColumn::rank) == core::usual_rank;
}
/// Of the usual rank, and of no group.
bool is_usual(const pg::TableRow &row) {
    return has_usual_rank(row) && !has_group(row);
}
bool waits_for_turn(const pg::TableRow &row) {
    return waits_for_service(row) && !is_usual(row);
}
bool is_leased(const pg::TableRow &row) {
    return !row.is_null(WorkColumn::queue) && !row.is_null(WorkColumn::lease_until);
}
constexpr char waits_for_turn_predicate[] =
    "((queue IS NOT NULL) AND (NOT verifying) AND (lease_until IS NULL) AND "
    "((rank <> 3) OR (group_key <> ''::text)))";

constexpr std::array work_indexes{
    pg::TableIndex{.name = "work_pkey",
                   .key = {WorkColumn::saga_id, WorkColumn::purpose, WorkColumn::step_no,
                           WorkColumn::direction, WorkColumn::token},
                   .is_unique = true},
    pg::TableIndex{
        .name = "work_for_workers",
        .key = {WorkColumn::ring_id, WorkColumn::slot, WorkColumn::due_at},
        .predicate = "(((queue IS NULL) OR verifying OR (lease_until IS NOT NULL)) AND (rank = 3))",
        .holds = [](const pg::TableRow &row) { return is_for_worker(row) && has_usual_rank(row); }},
    pg::TableIndex{
        .name = "work_for_workers_by_rank",
        .key = {WorkColumn::ring_id, WorkColumn::rank, WorkColumn::slot, WorkColumn::due_at},
        .predicate =
            "(((queue IS NULL) OR verifying OR (lease_until IS NOT NULL)) AND (rank <> 3))",
        .holds =
            [](const pg::TableRow &row) { return is_for_worker(row) && !has_usual_rank(row); }},
    pg::TableIndex{
        .name = "work_for_services",
        .key = {WorkColumn::ring_id, WorkColumn::queue, WorkColumn::due_at},
        .predicate = "((queue IS NOT NULL) AND (NOT verifying) AND (lease_until IS NULL) AND "
                     "(rank = 3) AND (group_key = ''::text))",
        .holds = [](const pg::TableRow &row) { return waits_for_service(row) && is_usual(row); }},
    pg::TableIndex{
        .name = "work_by_rank",
        .key = {WorkColumn::ring_id, WorkColumn::queue, WorkColumn::rank, WorkColumn::due_at},
        .predicate = waits_for_turn_predicate,
        .holds = waits_for_turn},
    pg::TableIndex{.name = "work_by_group",
                   .key = {WorkColumn::ring_id, WorkColumn::queue, WorkColumn::rank,
                           WorkColumn::group_key, WorkColumn::due_at},
                   .predicate = waits_for_turn_predicate,
                   .holds = waits_for_turn},
    pg::TableIndex{.name = "work_leased",
                   .key = {WorkColumn::ring_id, WorkColumn::queue, WorkColumn::due_at},
                   .predicate = "((queue IS NOT NULL) AND (lease_until IS NOT NULL))",
                   .holds = is_leased},
    pg::TableIndex{
        .name = "work_leased_by_group",
        .key = {WorkColumn::ring_id, WorkColumn::queue, WorkColumn::group_key},
        .predicate = "((queue IS NOT NULL) AND (lease_until IS NOT NULL) AND "
                     "(group_key <> ''::text))",
        .holds = [](const pg::TableRow &row) { return is_leased(row) && has_group(row); }},
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

constexpr std::array queue_columns{
    pg::TableColumn{"ring_id", INT4OID},
    pg::TableColumn{"queue", TEXTOID},
    pg::TableColumn{"max_running", INT4OID, nullable},
    pg::TableColumn{"max_running_per_group", INT4OID, nullable},
    pg::TableColumn{"rate", INT4OID, nullable},
    pg::TableColumn{"rate_interval", INTERVALOID, nullable},
    pg::TableColumn{"paused_at", TIMESTAMPTZOID, nullable},
    pg::TableColumn{"pause_reason", TEXTOID, nullable},
};
constexpr std::array queue_indexes{
    pg::TableIndex{
        .name = "queue_pkey", .key = {QueueColumn::ring_id, QueueColumn::queue}, .is_unique = true},
};

constexpr std::array queue_claims_columns{
    pg::TableColumn{"ring_id", INT4OID},
    pg::TableColumn{"queue", TEXTOID},
    pg::TableColumn{"claimed_at", TIMESTAMPTZARRAYOID},
    pg::TableColumn{"claims", INT4ARRAYOID},
};
constexpr std::array queue_claims_indexes{
    pg::TableIndex{.name = "queue_claims_pkey",
                   .key = {QueueClaimsColumn::ring_id, QueueClaimsColumn::queue},
                   .is_unique = true},
};

/// The values of the enum, by WorkPurpose, as they were when the catalogs were in `state`.
struct Purposes {
    uint64 state;
    std::array<Oid, core::work_purpose_names.size()> values;
};

Oid find_purpose(Oid type, std::string_view name) {
    const Oid value = GetSysCacheOid2(ENUMTYPOIDNAME, Anum_pg_enum_oid, ObjectIdGetDatum(type),
                                      CStringGetDatum(name.data()));
    if (!OidIsValid(value))
        elog(ERROR, "type stacksaga.work_purpose has no value \"%s\"", name.data());
    return value;
}

const Purposes &purposes() {
    static constinit Purposes known{};
    const uint64 state = catalog_state();
    if (known.state == state)
        return known;
    known.state = 0;
    const Oid type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("work_purpose"),
                                     ObjectIdGetDatum(get_namespace_oid("stacksaga", false)));
    for (size_t i = 0; i < known.values.size(); ++i)
        known.values[i] = find_purpose(type, core::work_purpose_names[i]);
    known.state = state;
    return known;
}

} // namespace

constinit pg::Table definition_table{{.name = "saga_definition",
                                      .columns = definition_columns,
                                      .indexes = definition_indexes,
                                      .described = pg::Described::what_is_read}};
constinit pg::Table saga_table{
    {.name = "saga", .columns = saga_columns, .indexes = saga_indexes, .triggers = saga_triggers}};
constinit pg::Table attribute_table{
    {.name = "saga_attribute", .columns = attribute_columns, .indexes = attribute_indexes}};
constinit pg::Table removed_table{
    {.name = "removed_saga", .columns = removed_columns, .indexes = removed_indexes}};
constinit pg::Table work_table{{.name = "work", .columns = work_columns, .indexes = work_indexes}};
constinit pg::Table effect_table{
    {.name = "effect", .columns = effect_columns, .indexes = effect_indexes}};
constinit pg::Table failure_table{
    {.name = "failure", .columns = failure_columns, .indexes = failure_indexes}};

constinit pg::Table queue_table{{.name = "queue",
                                 .columns = queue_columns,
                                 .indexes = queue_indexes,
                                 .newer_versions = pg::NewerVersions::used}};
constinit pg::Table queue_claims_table{{.name = "queue_claims",
                                        .columns = queue_claims_columns,
                                        .indexes = queue_claims_indexes,
                                        .newer_versions = pg::NewerVersions::used}};

pg::Param purpose_param(core::WorkPurpose purpose) {
    return pg::param_datum(ANYENUMOID,
                           ObjectIdGetDatum(purposes().values[static_cast<size_t>(purpose)]));
}

core::WorkPurpose purpose_of(Datum value) {
    const auto &values = purposes().values;
    const auto at = std::find(values.begin(), values.end(), DatumGetObjectId(value));
    if (at == values.end())
        elog(ERROR, "unknown value %u of stacksaga.work_purpose", DatumGetObjectId(value));
    return static_cast<core::WorkPurpose>(at - values.begin());
}

} // namespace stacksaga
