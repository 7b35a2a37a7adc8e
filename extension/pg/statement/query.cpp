#include "pg/statement/query.hpp"

#include "pg/citus/citus.hpp"
#include "pg/citus/local_shards.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/scope.hpp"

namespace stacksaga::pg {

namespace {
constexpr size_t params_max = 32;

template <class T, class F>
Param array_of(std::span<const T> values, Oid array_type, Oid type, int16 length, bool byval,
               char align, F &&to_datum) {
    Datum *datums =
        static_cast<Datum *>(palloc(sizeof(Datum) * std::max<size_t>(values.size(), 1)));
    for (size_t i = 0; i < values.size(); ++i)
        datums[i] = to_datum(values[i]);
    ArrayType *array =
        construct_array(datums, static_cast<int>(values.size()), type, length, byval, align);
    return {array_type, PointerGetDatum(array), false};
}

const char *text_in_force(const char *sql, Reads reads) {
    return reads == Reads::this_node && is_citus_loaded() ? with_local_shards(sql) : sql;
}

ShardUse shards_in_force(const char *sql, Reads reads) {
    return reads == Reads::this_node ? ShardUse{} : shards_of_statement(sql);
}
} // namespace

Param param(std::string_view value) {
    return {TEXTOID, PointerGetDatum(make_text(value)), false};
}

Param param_array(std::span<const int32> values) {
    return array_of(values, INT4ARRAYOID, INT4OID, 4, true, TYPALIGN_INT,
                    [](int32 v) { return Int32GetDatum(v); });
}
Param param_array(std::span<const int64> values) {
    return array_of(values, INT8ARRAYOID, INT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE,
                    [](int64 v) { return Int64GetDatum(v); });
}
Param param_time_array(std::span<const TimestampTz> values) {
    return array_of(values, TIMESTAMPTZARRAYOID, TIMESTAMPTZOID, 8, FLOAT8PASSBYVAL,
                    TYPALIGN_DOUBLE, [](TimestampTz v) { return TimestampTzGetDatum(v); });
}
Param param_array(std::span<const pg_uuid_t> values) {
    return array_of(values, UUIDARRAYOID, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR,
                    [](const pg_uuid_t &v) { return UUIDPGetDatum(&v); });
}
Param param_array(std::span<const std::string_view> values) {
    return array_of(values, TEXTARRAYOID, TEXTOID, -1, false, TYPALIGN_INT,
                    [](std::string_view v) { return PointerGetDatum(make_text(v)); });
}

std::string_view Rows::text(uint64 row, ColumnNumber column) const {
    return view_of_text(value(row, column));
}

std::optional<TimestampTz> Rows::optional_time(uint64 row, ColumnNumber column) const {
    bool isnull;
    Datum d = datum(row, column, &isnull);
    if (isnull)
        return std::nullopt;
    return DatumGetTimestampTz(d);
}

std::optional<std::string_view> Rows::optional_text(uint64 row, ColumnNumber column) const {
    bool isnull;
    Datum d = datum(row, column, &isnull);
    if (isnull)
        return std::nullopt;
    return view_of_text(d);
}

std::optional<int64> Rows::optional_int8(uint64 row, ColumnNumber column) const {
    bool isnull;
    Datum d = datum(row, column, &isnull);
    if (isnull)
        return std::nullopt;
    return DatumGetInt64(d);
}

void Statement::prepare(std::span<const Param> params) {
    std::array<Oid, params_max> types{};
    if (params.size() > params_max)
        elog(ERROR, "too many parameters");
    for (size_t i = 0; i < params.size(); ++i)
        types[i] = params[i].type;
    MemoryContext caller = CurrentMemoryContext;
    const uint64 state = state_of_citus();
    const char *text = text_in_force(sql_, reads_);
    const int options = cursor_options(plans_, text);
    SPIPlanPtr plan =
        SPI_prepare_cursor(text, static_cast<int>(params.size()), types.data(), options);
    if (plan == nullptr)
        elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
    if (text != sql_)
        text = MemoryContextStrdup(TopMemoryContext, text);
    SPI_keepplan(plan);
    MemoryContextSwitchTo(caller);
    plan_ = plan; // another one may be running, and is left
    if (text_ != sql_ && text_ != nullptr)
        pfree(const_cast<char *>(text_));
    text_ = text;
    options_ = options;
    shards_ = shards_in_force(sql_, reads_);
    citus_state_ = state;
}

bool Statement::is_outdated() {
    if (reads_ == Reads::this_node && is_citus_loaded())
        AcceptInvalidationMessages(); // a shard that was moved away is dropped some time later
    const uint64 state = state_of_citus();
    if (state == citus_state_)
        return false;
    const char *text = text_in_force(sql_, reads_);
    if (strcmp(text, text_) != 0 || cursor_options(plans_, text) != options_)
        return true;
    shards_ = shards_in_force(sql_, reads_);
    citus_state_ = state;
    return false;
}

int Statement::execute_plan(std::span<const Param> params, Snapshots snapshots) {
    if (plan_ == nullptr || is_outdated())
        prepare(params);
    if (shards_.any())
        note_shards(shards_, params);
    std::array<Datum, params_max> values{};
    std::array<char, params_max> nulls{};
    for (size_t i = 0; i < params.size(); ++i) {
        values[i] = params[i].value;
        nulls[i] = params[i].isnull ? 'n' : ' ';
    }
    if (snapshots == Snapshots::latest && IsolationUsesXactSnapshot()) {
        // In READ COMMITTED SPI itself takes a new snapshot for each statement that may write.
        Snapshot latest = RegisterSnapshot(GetLatestSnapshot());
        const int code = SPI_execute_snapshot(plan_, values.data(), nulls.data(), latest,
                                              InvalidSnapshot, false, true, 0);
        UnregisterSnapshot(latest);
        return code;
    }
    return SPI_execute_plan(plan_, values.data(), nulls.data(), snapshots == Snapshots::of_query,
                            0);
}

Rows Statement::execute(std::span<const Param> params, Snapshots snapshots) {
    // SPI leaves its own procedure context current, whatever was before.
    MemoryContext caller = CurrentMemoryContext;
    const auto run = [&] { return execute_plan(params, snapshots); };
    const int code = path_ == Path::pinned ? with_pinned_path(run) : run();
    MemoryContextSwitchTo(caller);
    if (code < 0)
        elog(ERROR, "SPI execution failed: %s", SPI_result_code_string(code));
    return {SPI_tuptable, SPI_processed};
}

} // namespace stacksaga::pg
