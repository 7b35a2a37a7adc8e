#include "otlp/trace_reader.hpp"

#include <array>
#include <utility>

namespace stacksaga::coordinator {
namespace {

constexpr Duration statement_deadline = std::chrono::seconds(10);
constexpr std::array<std::string_view, 1> role_kinds{"monitor"};

constexpr const char *SQL_SESSION =
    "SELECT pg_catalog.set_config('statement_timeout', '11s', false),"
    "       pg_catalog.set_config('default_transaction_read_only', 'on', false)";
constexpr const char *SQL_HOLD = "SELECT stacksaga_internal.hold_span_export()";
constexpr const char *SQL_NOW =
    "SELECT (extract(epoch FROM stacksaga.clock_now()) * 1000000)::bigint";
constexpr const char *SQL_FINISHED =
    "SELECT saga_id, (extract(epoch FROM finished_at) * 1000000)::bigint"
    "  FROM stacksaga.traced_sagas('epoch'::timestamptz + $1::bigint * interval '1 microsecond',"
    "           nullif($2::text, '')::uuid, $3::integer)";
constexpr const char *SQL_SPANS =
    "SELECT pg_catalog.count(*), pg_catalog.jsonb_build_object('resourceSpans', pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object("
    "           'resource', pg_catalog.jsonb_build_object('attributes', pg_catalog.jsonb_build_array("
    "               pg_catalog.jsonb_build_object('key', 'service.name', 'value', '{\"stringValue\": \"stacksaga\"}'::jsonb),"
    "               pg_catalog.jsonb_build_object('key', 'db.namespace', 'value',"
    "                   pg_catalog.jsonb_build_object('stringValue', pg_catalog.current_database())))),"
    "           'scopeSpans', pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object("
    "               'scope', pg_catalog.jsonb_build_object('name', 'stacksaga', 'version', $2::text),"
    "               'spans', coalesce(pg_catalog.jsonb_agg(s.span), '[]'))))))"
    "  FROM (SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object("
    "                   'traceId', trace_id, 'spanId', span_id, 'parentSpanId', parent_span_id,"
    "                   'name', name, 'kind', 1,"
    "                   'startTimeUnixNano', (extract(epoch FROM started_at) * 1000000)::bigint || '000',"
    "                   'endTimeUnixNano', (extract(epoch FROM finished_at) * 1000000)::bigint || '000',"
    "                   'attributes', ("
    "                       SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('key', a.key, 'value', pg_catalog.jsonb_build_object("
    "                                  CASE pg_catalog.jsonb_typeof(a.value) WHEN 'number' THEN 'intValue'"
    "                                  ELSE 'stringValue' END, a.value #>> '{}')))"
    "                         FROM pg_catalog.jsonb_each(attributes) AS a),"
    "                   'status', CASE WHEN error IS NULL THEN pg_catalog.jsonb_build_object('code', 1)"
    "                             ELSE pg_catalog.jsonb_build_object('code', 2, 'message', pg_catalog.left(error, 1000)) END)) AS span"
    "          FROM stacksaga.saga_spans($1::uuid[])) AS s";

} // namespace

TraceReader::TraceReader(const asio::any_io_executor &executor, std::string conninfo,
                         Connection::NoticeHandler on_notice)
    : connection_(executor, std::move(conninfo), std::move(on_notice),
                  {SQL_SESSION, role_kinds, statement_deadline}) {}

asio::awaitable<bool> TraceReader::is_exporter() {
    const Parameters none;
    const Rows rows = co_await connection_.query(SQL_HOLD, none);
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
