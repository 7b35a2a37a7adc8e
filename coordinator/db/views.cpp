#include "db/views.hpp"

// A payload as {"text", "bytes"}: at most 64 kB of it. A character has at most four bytes.
#define PAYLOAD(VALUE)                                                                                     \
    "(SELECT pg_catalog.json_build_object('bytes', pg_catalog.octet_length(t), 'text',"                    \
    "            CASE WHEN pg_catalog.octet_length(t) <= 65536 THEN t ELSE pg_catalog.left(t, 16384) END)" \
    "   FROM (SELECT " VALUE "::text) AS v(t) WHERE t IS NOT NULL)"

// The rows of a query as a JSON list in their order.
#define LIST(QUERY)                                                                                \
    "(SELECT coalesce(pg_catalog.json_agg(pg_catalog.to_json(x)), '[]') FROM (" QUERY ") AS x)"

// The instants of a text as a JSON list, in their order. A day is added to the first of its month,
// so that no text, which may be a name, is an error.
#define INSTANTS(TEXT)                                                                             \
    "(SELECT pg_catalog.json_agg(pg_catalog.make_timestamptz(m[1]::integer, m[2]::integer, 1,"     \
    "            m[4]::integer, m[5]::integer, m[6]::double precision)"                            \
    "            + pg_catalog.make_interval(days => m[3]::integer - 1))"                           \
    "   FROM pg_catalog.regexp_matches(" TEXT ", '([1-9]\\d{3})-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|"  \
    "3[01]) ([01]\\d|2[0-3]):([0-5]\\d):([0-5]\\d\\.\\d{3})', 'g') AS m)"

// Who paused an object at an instant, by the record of it, which comes with the pause.
#define PAUSED_BY(OBJECT, SINCE)                                                                   \
    "(SELECT coalesce(a.on_behalf_of, a.role_name) FROM stacksaga.operator_actions AS a"           \
    "  WHERE a.at BETWEEN " SINCE " AND " SINCE " + interval '10 seconds'"                         \
    "    AND a.action = 'pause' AND a.object = " OBJECT " ORDER BY a.at LIMIT 1) AS paused_by"

namespace stacksaga::coordinator {
namespace {

// clang-format indents strings among macros by the columns of the macros before them.
// clang-format off

/// One row more than a page shows, to know whether there is a next page.
constexpr const char *SQL_SAGAS = "SELECT pg_catalog.json_build_object('sagas', " LIST(
    "SELECT f.saga_id, f.saga, f.version, f.key, f.status, f.waits_for, f.priority,"
    "       f.group_key, f.created_at, f.updated_at, f.finished_at,"
    "       CASE WHEN $7::boolean THEN f.attributes END AS attributes"
    "  FROM stacksaga.find_sagas(saga => $1::text, status => $2::text,"
    "           key_prefix => $3::text, attributes => $4::jsonb,"
    "           created_before => $5::timestamptz, before_saga_id => $6::uuid,"
    "           max_sagas => 51) AS f") ", 'now', stacksaga.clock_now())";

/// Sagas of one key, of all names and runs: find_sagas() may find many whose keys begin with it.
constexpr const char *SQL_SAGAS_OF_KEY = "SELECT pg_catalog.json_build_object('sagas', " LIST(
    "SELECT s.saga_id, s.saga, s.key, s.status FROM stacksaga.sagas AS s WHERE s.key = $1::text"
    " ORDER BY s.created_at DESC, s.saga_id DESC LIMIT 51") ")";

constexpr const char *SQL_SAGA =
    "WITH s AS MATERIALIZED ("
    "    SELECT saga_id, saga, version, key, status, current_step, attempt, paused_until,"
    "           pause_reason, region, cluster, token::text AS token, input,"
    "           pg_catalog.left(last_error, 8192) AS last_error, created_at, updated_at, finished_at,"
    "           parent_id, priority, group_key, attributes, compensation_requested"
    "      FROM stacksaga.sagas WHERE saga_id = $1::uuid)"
    "SELECT pg_catalog.json_build_object("
    "    'saga', pg_catalog.to_jsonb(s) - ARRAY['input', 'attributes'],"
    "    'waits_for', w.waits_for, 'waits_at', " INSTANTS("w.waits_for") ","
    "    'attributes', CASE WHEN $2::boolean THEN s.attributes END,"
    "    'input', CASE WHEN $2 THEN " PAYLOAD("s.input") " END,"
    "    'result', (SELECT pg_catalog.json_build_object('failed_step', r.failed_step,"
    "                   'error', pg_catalog.left(r.error, 8192),"
    "                   'output', CASE WHEN $2 THEN " PAYLOAD("r.output") " END)"
    "                 FROM stacksaga.saga_result(s.saga_id) AS r),"
    "    'attempts', " LIST(
        "SELECT h.step, h.direction, h.attempt, h.status, pg_catalog.left(h.error, 8192) AS error,"
        "       h.error_class, h.started_at, h.finished_at, h.worker, h.published,"
        "       CASE WHEN $2 THEN pg_catalog.left(h.progress::text, 200) END AS progress"
        "  FROM stacksaga.saga_history AS h WHERE h.saga_id = s.saga_id"
        " ORDER BY h.started_at, h.finished_at LIMIT 500") ","
    "    'actions', " LIST(
        "SELECT a.action, a.step, a.outcome, a.role, a.on_behalf_of, a.reason, a.acted_at,"
        "       a.status_before, a.status_after"
        "  FROM stacksaga.saga_actions AS a WHERE a.saga_id = s.saga_id"
        " ORDER BY a.acted_at LIMIT 200") ","
    "    'children', " LIST(
        "SELECT c.saga_id, c.saga, c.key, c.status, c.created_at, c.finished_at"
        "  FROM stacksaga.sagas AS c WHERE c.parent_id = s.saga_id"
        " ORDER BY c.created_at LIMIT 100") ","
    "    'parent', (SELECT pg_catalog.json_build_object('saga_id', p.saga_id, 'saga', p.saga,"
    "                   'status', p.status)"
    "                 FROM stacksaga.sagas AS p WHERE p.saga_id = s.parent_id),"
    "    'parked', (SELECT pg_catalog.json_build_object('step', p.step,"
    "                   'direction', p.direction, 'since', p.since, 'hint', p.hint)"
    "                 FROM stacksaga.parked_sagas AS p WHERE p.saga_id = s.saga_id),"
    "    'timeline', (SELECT pg_catalog.json_agg(l.line ORDER BY l.n)"
    "                   FROM (SELECT pg_catalog.left(CASE WHEN $2 THEN t.line"
    "                                     ELSE " WITHOUT_PROGRESS("t.line") " END, 8192) AS line, t.n"
    "                           FROM stacksaga.saga_timeline(s.saga_id)"
    "                                WITH ORDINALITY AS t(line, n)"
    "                          LIMIT 1000) AS l),"
    "    'diagram', stacksaga.saga_diagram(s.saga, s.version),"
    "    'now', stacksaga.clock_now())"
    "  FROM s, LATERAL (SELECT stacksaga_internal.saga_waits_for(s.saga_id)) AS w(waits_for)";

constexpr const char *SQL_PROBLEMS = "SELECT pg_catalog.json_build_object('saga_groups', " LIST(
    "SELECT g.pattern, g.error, g.first_seen, g.last_seen, g.parked, g.retrying, g.sagas, g.steps,"
    "       g.versions, (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object("
    "                       'saga_id', p.saga_id, 'key', p.key, 'step', p.step,"
    "                       'direction', p.direction, 'since', p.since,"
    "                       'error', pg_catalog.left(p.error, 2000), 'hint', p.hint)"
    "                   ORDER BY p.since, p.saga_id), '[]')"
    "              FROM pg_catalog.unnest(g.first_parked) AS f(saga_id)"
    "              JOIN stacksaga.parked_sagas AS p ON p.saga_id = f.saga_id) AS first"
    "  FROM stacksaga_internal.saga_error_groups() AS g") ", 'message_groups', " LIST(
    "SELECT * FROM stacksaga_internal.message_error_groups()") ", 'now', stacksaga.clock_now())";

constexpr const char *SQL_QUEUES = "SELECT pg_catalog.json_build_object('queues', " LIST(
    "SELECT q.*, " PAUSED_BY("'queue ' || q.queue", "q.paused_since")
    "  FROM stacksaga.queues AS q ORDER BY q.queue LIMIT 500") ", 'now', stacksaga.clock_now())";

constexpr const char *SQL_BLOCKED_KEYS =
    "SELECT pg_catalog.json_build_object('blocked_keys', " LIST(
        "SELECT b.subscription, b.region, b.cluster, b.topic, b.key, b.message_id,"
        "       b.blocked_since, b.attempts, pg_catalog.left(b.last_error, 2048) AS last_error, b.waiting"
        "  FROM stacksaga_internal.first_blocked_keys($1::text) AS b"
        " ORDER BY b.blocked_since LIMIT 50") ", 'now', stacksaga.clock_now())";

constexpr const char *SQL_DEAD_MESSAGES =
    "SELECT pg_catalog.json_build_object('dead_messages', " LIST(
        "SELECT d.subscription, d.region, d.cluster, d.topic, d.key, d.message_id, d.dead_since,"
        "       d.attempts, pg_catalog.left(d.last_error, 2048) AS last_error"
        "  FROM stacksaga.dead_messages AS d"
        " WHERE ($1::text IS NULL OR d.subscription = $1)"
        "   AND ($2::timestamptz IS NULL OR (d.dead_since, d.message_id) > ($2, $3::uuid))"
        " ORDER BY d.dead_since, d.message_id LIMIT 51") ", 'now', stacksaga.clock_now())";

constexpr const char *SQL_MESSAGE =
    "SELECT pg_catalog.json_build_object('message_id', d.message_id, 'subscription',"
    "           d.subscription, 'topic', d.topic, 'key', d.key, 'dead_since', d.dead_since,"
    "           'attempts', d.attempts, 'last_error', pg_catalog.left(d.last_error, 8192),"
    "           'payload', CASE WHEN $3::boolean THEN " PAYLOAD("d.payload") " END)"
    "  FROM stacksaga.dead_messages AS d"
    " WHERE d.subscription = $1::text AND d.message_id = $2::uuid LIMIT 1";

// For operators: values of rows may be in it. Of the kind `support`, unlike the other views.
constexpr const char *SQL_SAGA_ERROR_DETAIL = "SELECT " LIST(
    "SELECT d.step, d.direction, d.attempt, pg_catalog.left(d.detail, 8192) AS detail,"
    "       pg_catalog.left(d.context, 8192) AS context"
    "  FROM stacksaga.saga_error_detail($1::uuid) AS d LIMIT 500");

constexpr const char *SQL_MESSAGE_ERROR_DETAIL = "SELECT " LIST(
    "SELECT d.attempt, pg_catalog.left(d.detail, 8192) AS detail,"
    "       pg_catalog.left(d.context, 8192) AS context"
    "  FROM stacksaga.message_error_detail($1::text, $2::uuid) AS d");

constexpr const char *SQL_SCHEDULES = "SELECT pg_catalog.json_build_object('schedules', " LIST(
    "SELECT s.schedule, s.region, s.cluster, s.saga, s.cron, s.timezone, s.paused,"
    "       s.paused_since, s.pause_reason, s.next_run, s.last_run, s.last_saga_id,"
    "       s.catch_up, s.overlap, s.role, s.failures, s.failed_since,"
    "       pg_catalog.left(s.last_error, 2048) AS last_error, s.next_attempt,"
    "       pg_catalog.to_jsonb(s) -> 'skipped' AS skipped,"
    "       pg_catalog.to_jsonb(s) -> 'skipped_since' AS skipped_since,"
    "       CASE WHEN $2::boolean THEN " PAYLOAD("s.input") " END AS input"
    "  FROM stacksaga.schedules AS s WHERE $1::text IS NULL OR s.schedule > $1"
    " ORDER BY s.schedule LIMIT 51") ", 'now', stacksaga.clock_now())";

constexpr const char *SQL_DEFINITIONS = "SELECT pg_catalog.json_build_object('definitions', " LIST(
    "SELECT d.*, " PAUSED_BY("'definition ' || d.saga", "d.paused_since")
    "  FROM stacksaga.definitions AS d"
    " WHERE $1::text IS NULL OR d.saga > $1 OR (d.saga = $1 AND d.version < $2::integer)"
    " ORDER BY d.saga, d.version DESC LIMIT 51") ", 'now', stacksaga.clock_now())";

constexpr const char *SQL_DEFINITION =
    "SELECT pg_catalog.json_build_object('saga', $1::text, 'version', $2::integer,"
    "           'diagram', stacksaga.saga_diagram($1, $2), 'definition',"
    "           (SELECT pg_catalog.to_json(x) FROM (SELECT d.saga, d.paused, d.paused_since,"
    "                d.paused_until, d.pause_reason,"
    "                " PAUSED_BY("'definition ' || d.saga", "d.paused_since")
    "                 FROM stacksaga.definitions AS d WHERE d.saga = $1 AND d.is_current) AS x),"
    "           'now', stacksaga.clock_now(), 'retries', " LIST(
        "SELECT * FROM stacksaga.explain_retries($1)") ")";

constexpr const char *SQL_OPERATOR_ACTIONS =
    "SELECT pg_catalog.json_build_object('operator_actions', " LIST(
        "SELECT a.at, a.role_name, a.on_behalf_of, a.action, a.object, a.reason, a.detail"
        "  FROM stacksaga.operator_actions AS a"
        " WHERE a.at < coalesce($1::timestamptz, 'infinity')"
        " ORDER BY a.at DESC LIMIT 51") ", 'now', stacksaga.clock_now())";
// clang-format on

} // namespace

std::span<const View> views() {
    static const std::vector<View> all{
        {"/api/sagas",
         {"saga", "status", "key", "attributes", "created_before", "before_saga_id", "payloads"},
         SQL_SAGAS},
        {"/api/sagas-of-key", {"key"}, SQL_SAGAS_OF_KEY},
        {"/api/saga", {"id", "payloads"}, SQL_SAGA, "No saga has this id."},
        {"/api/problems", {}, SQL_PROBLEMS},
        {"/api/queues", {}, SQL_QUEUES},
        {"/api/blocked-keys", {"subscription"}, SQL_BLOCKED_KEYS},
        {"/api/dead-messages", {"subscription", "after", "after_id"}, SQL_DEAD_MESSAGES},
        {"/api/message",
         {"subscription", "id", "payloads"},
         SQL_MESSAGE,
         "No dead message of this subscription has this id."},
        {"/api/saga-error-detail", {"id"}, SQL_SAGA_ERROR_DETAIL, {}, true},
        {"/api/message-error-detail", {"subscription", "id"}, SQL_MESSAGE_ERROR_DETAIL, {}, true},
        {"/api/schedules", {"after", "payloads"}, SQL_SCHEDULES},
        {"/api/definitions", {"after", "version"}, SQL_DEFINITIONS},
        {"/api/definition", {"saga", "version"}, SQL_DEFINITION},
        {"/api/operator-actions", {"before"}, SQL_OPERATOR_ACTIONS},
    };
    return all;
}

} // namespace stacksaga::coordinator
