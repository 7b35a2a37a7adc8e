#include "src/work/work_table.hpp"

#include "core/queue/claim_order.hpp"
#include "core/saga/work_purpose.hpp"

#include "src/handler/catalog_watch.hpp"

namespace stacksaga {

namespace {

constexpr pg::Nulls nullable = pg::Nulls::allowed;
constexpr pg::Nulls not_null = pg::Nulls::refused;

constexpr pg::TableColumn token{"token", INT8OID, not_null, "ring_token"};
constexpr pg::TableColumn direction{"direction", TEXTOID, not_null, "step_direction"};

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
    pg::TableColumn{"place_at", TIMESTAMPTZOID, nullable},
    pg::TableColumn{"releases", INT4OID, nullable},
    pg::TableColumn{"paused_saga", TEXTOID, nullable},
    pg::TableColumn{"progress", JSONBOID, nullable, nullptr, pg::Toasted::left},
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
    pg::TableIndex{
        .name = "work_held_back",
        .key = {WorkColumn::paused_saga, WorkColumn::ring_id, WorkColumn::queue,
                WorkColumn::resume_at},
        .predicate = "(paused_saga IS NOT NULL)",
        .holds = [](const pg::TableRow &row) { return !row.is_null(WorkColumn::paused_saga); }},
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

constinit pg::Table work_table{{.name = "work", .columns = work_columns, .indexes = work_indexes}};

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
