#include "otlp/trace_reader.hpp"

#include <array>
#include <utility>

namespace stacksaga::coordinator {
namespace {

constexpr Duration statement_deadline = std::chrono::seconds(10);
constexpr std::array<std::string_view, 1> role_kinds{"monitor"};

constexpr const char *SQL_SESSION =
    "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false),"
    "       pg_catalog.set_config('statement_timeout', '11s', false),"
    "       pg_catalog.set_config('default_transaction_read_only', 'on', false)";
// "stks" and "otlp". A session that has the lock gets it again.
constexpr const char *SQL_LOCK = "SELECT pg_try_advisory_lock(1937009523, 1869900912)";
constexpr const char *SQL_NOW =
    "SELECT (extract(epoch FROM stacksaga.clock_now()) * 1000000)::bigint";
constexpr const char *SQL_FINISHED =
    "SELECT saga_id, (extract(epoch FROM finished_at) * 1000000)::bigint"
    "  FROM stacksaga.traced_sagas('epoch'::timestamptz + $1::bigint * interval '1 microsecond',"
    "           nullif($2::text, '')::uuid, $3::integer)";
constexpr const char *SQL_SPANS =
    "SELECT count(*), jsonb_build_object('resourceSpans', jsonb_build_array(jsonb_build_object("
    "           'resource', jsonb_build_object('attributes', jsonb_build_array("
    "               jsonb_build_object('key', 'service.name', 'value', '{\"stringValue\": \"stacksaga\"}'::jsonb),"
    "               jsonb_build_object('key', 'db.namespace', 'value',"
    "                   jsonb_build_object('stringValue', current_database())))),"
    "           'scopeSpans', jsonb_build_array(jsonb_build_object("
    "               'scope', jsonb_build_object('name', 'stacksaga', 'version', $2::text),"
    "               'spans', coalesce(jsonb_agg(s.span), '[]'))))))"
    "  FROM (SELECT jsonb_strip_nulls(jsonb_build_object("
    "                   'traceId', trace_id, 'spanId', span_id, 'parentSpanId', parent_span_id,"
    "                   'name', name, 'kind', 1,"
    "                   'startTimeUnixNano', (extract(epoch FROM started_at) * 1000000)::bigint || '000',"
    "                   'endTimeUnixNano', (extract(epoch FROM finished_at) * 1000000)::bigint || '000',"
    "                   'attributes', ("
    "                       SELECT jsonb_agg(jsonb_build_object('key', a.key, 'value', jsonb_build_object("
    "                                  CASE jsonb_typeof(a.value) WHEN 'number' THEN 'intValue'"
    "                                  ELSE 'stringValue' END, a.value #>> '{}')))"
    "                         FROM jsonb_each(attributes) AS a),"
    "                   'status', CASE WHEN error IS NULL THEN jsonb_build_object('code', 1)"
    "                             ELSE jsonb_build_object('code', 2, 'message', left(error, 1000)) END)) AS span"
    "          FROM stacksaga.saga_spans($1::uuid[])) AS s";

} // namespace

TraceReader::TraceReader(const asio::any_io_executor &executor, std::string conninfo,
                         Connection::NoticeHandler on_notice)
    : connection_(executor, std::move(conninfo), std::move(on_notice),
                  {SQL_SESSION, role_kinds, statement_deadline}) {}

asio::awaitable<bool> TraceReader::is_exporter() {
    const Parameters none;
    const Rows rows = co_await connection_.query(SQL_LOCK, none);
    co_return rows.text(0, 0) == "t";
}

asio::awaitable<std::int64_t> TraceReader::now() {
    const Parameters none;
    const Rows rows = co_await connection_.query(SQL_NOW, none);
    co_return rows.int64(0, 0);
}

asio::awaitable<std::vector<FinishedSaga>> TraceReader::finished_after(const FinishedSaga &last) {
    const Parameters parameters{std::to_string(last.finished_at), last.id, std::to_string(page)};
    const Rows rows = co_await connection_.query(SQL_FINISHED, parameters);
    std::vector<FinishedSaga> sagas;
    for (int row = 0; row < rows.size(); ++row)
        sagas.push_back({rows.int64(row, 1), std::string(rows.text(row, 0))});
    co_return sagas;
}

asio::awaitable<SpanDocument> TraceReader::spans_of(std::span<const FinishedSaga> sagas) {
    std::string ids;
    for (const FinishedSaga &saga : sagas)
        ids += (ids.empty() ? "{" : ",") + saga.id;
    const Parameters parameters{ids + "}", STACKSAGA_VERSION};
    const Rows rows = co_await connection_.query(SQL_SPANS, parameters);
    co_return SpanDocument{static_cast<int>(rows.int64(0, 0)), std::string(rows.text(0, 1))};
}

} // namespace stacksaga::coordinator
