#include "db/operations.hpp"

#include <algorithm>
#include <array>

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

// A call of one of the functions that act on many sagas.
#define ON_SAGAS(FUNCTION, MORE)                                                                   \
    "SELECT coalesce(pg_catalog.json_agg(pg_catalog.to_json(r)), '[]')"                            \
    "  FROM stacksaga." FUNCTION "(ARRAY(SELECT e::uuid"                                           \
    "           FROM pg_catalog.jsonb_array_elements_text($1::jsonb -> 'saga_ids') AS e),"         \
    "           $1::jsonb ->> 'reason', $2::boolean" MORE ") AS r"
#define SPREAD ", coalesce(($1::jsonb ->> 'spread')::interval, '0')"
#define PAST ", coalesce(($1::jsonb ->> 'past_dedupe_retention')::boolean, false)"

// A call for each of the messages that the object names.
#define ON_MESSAGES(FUNCTION, MORE)                                                                \
    "SELECT pg_catalog.json_agg(pg_catalog.json_build_object('message_id', e.id))"                 \
    "  FROM pg_catalog.jsonb_array_elements_text($1::jsonb -> 'message_ids') AS e(id),"            \
    "       LATERAL stacksaga." FUNCTION "($1::jsonb ->> 'subscription', e.id::uuid" MORE ") AS d" \
    " WHERE $2::boolean IS NOT NULL"

// A call of a function of a name and a reason.
#define ON_NAME(FUNCTION, NAME)                                                                    \
    "SELECT pg_catalog.json_build_array("                                                          \
    "           pg_catalog.json_build_object('" NAME "', $1::jsonb ->> '" NAME "'))"               \
    "  FROM stacksaga." FUNCTION "($1::jsonb ->> '" NAME "', $1::jsonb ->> 'reason') AS d"         \
    " WHERE $2::boolean IS NOT NULL"

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
    "           parent_id, priority, group_key, attributes"
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
        "       h.error_class, h.started_at, h.finished_at, h.worker, h.published"
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
    "                   FROM (SELECT pg_catalog.left(t.line, 8192) AS line, t.n"
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
    "SELECT * FROM stacksaga.queues ORDER BY queue LIMIT 500") ", 'now', stacksaga.clock_now())";

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
    "SELECT * FROM stacksaga.definitions"
    " WHERE $1::text IS NULL OR saga > $1 OR (saga = $1 AND version < $2::integer)"
    " ORDER BY saga, version DESC LIMIT 51") ", 'now', stacksaga.clock_now())";

constexpr const char *SQL_DEFINITION =
    "SELECT pg_catalog.json_build_object('saga', $1::text, 'version', $2::integer,"
    "           'diagram', stacksaga.saga_diagram($1, $2), 'retries', " LIST(
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

namespace {

constexpr std::array all_actions{
    Action{"retry", ON_SAGAS("retry_sagas", SPREAD)},
    Action{"resume", ON_SAGAS("resume_sagas", SPREAD)},
    // A batch of one group of the page's problems: sagas after an id, messages the oldest first,
    // without those that have lost their payload, which are refused and stay in the group.
    Action{"retry-group", "SELECT coalesce(pg_catalog.json_agg(pg_catalog.to_json(r)), '[]')"
                          "  FROM stacksaga.retry_sagas(ARRAY("
                          "           SELECT stacksaga_internal.parked_of_pattern("
                          "               $1::jsonb ->> 'pattern', ($1::jsonb ->> 'after')::uuid)),"
                          "           $1::jsonb ->> 'reason', $2::boolean" SPREAD ") AS r"},
    Action{
        "redrive-group",
        "SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('message_id', m.id)), '[]')"
        "  FROM (SELECT d.message_id FROM stacksaga.dead_messages AS d"
        "         WHERE d.subscription = $1::jsonb ->> 'subscription'"
        "           AND d.region = pg_catalog.current_setting('stacksaga.region')"
        "           AND d.cluster = pg_catalog.current_setting('stacksaga.cluster')"
        "           AND stacksaga_internal.error_pattern(coalesce(d.last_error, ''))"
        "               = $1::jsonb ->> 'pattern'"
        "           AND d.payload IS NOT NULL"
        "         ORDER BY d.dead_since, d.message_id LIMIT 1000) AS m(id),"
        "       LATERAL stacksaga.redrive_message($1::jsonb ->> 'subscription', m.id,"
        "           $1::jsonb ->> 'reason'" PAST ") AS r"
        " WHERE $2::boolean IS NOT NULL"},
    Action{"cancel", ON_SAGAS("cancel_sagas", "")},
    Action{"suspend", ON_SAGAS("suspend_sagas", "")},
    Action{"resolve", "SELECT pg_catalog.json_build_array(pg_catalog.json_build_object("
                      "           'saga_id', $1::jsonb ->> 'saga_id', 'status_after',"
                      "           stacksaga.resolve_step(($1::jsonb ->> 'saga_id')::uuid,"
                      "               $1::jsonb ->> 'step', $1::jsonb ->> 'outcome',"
                      "               $1::jsonb -> 'output', $1::jsonb ->> 'reason')))"
                      " WHERE $2::boolean IS NOT NULL"},
    Action{"redrive", ON_MESSAGES("redrive_message", ", $1::jsonb ->> 'reason'" PAST)},
    Action{"discard", ON_MESSAGES("discard_message", ", $1::jsonb ->> 'reason'")},
    Action{"redrive-all", "SELECT coalesce(pg_catalog.json_agg(pg_catalog.to_json(r)), '[]')"
                          "  FROM stacksaga.redrive_messages($1::jsonb ->> 'subscription',"
                          "           $1::jsonb ->> 'topic',"
                          "           coalesce(($1::jsonb ->> 'max_messages')::integer, 1000),"
                          "           $1::jsonb ->> 'reason', $2::boolean" SPREAD PAST ") AS r"},
    Action{"pause-queue", ON_NAME("pause_queue", "queue")},
    Action{"resume-queue", ON_NAME("resume_queue", "queue")},
    Action{"pause-schedule", ON_NAME("pause_schedule", "schedule")},
    Action{"resume-schedule", ON_NAME("resume_schedule", "schedule")},
};

constexpr Duration statement_deadline = std::chrono::seconds(20);
constexpr std::array<std::string_view, 1> role_kinds{"support"};

constexpr const char *SQL_SESSION =
    "SELECT pg_catalog.set_config('statement_timeout', '15s', false),"
    "       pg_catalog.set_config('lock_timeout', '5s', false),"
    "       pg_catalog.set_config('idle_in_transaction_session_timeout', '30s', false)";
constexpr const char *SQL_BEGIN = "BEGIN";
/// Objects that are not sagas belong to a ring, which the object may name.
constexpr const char *SQL_FOR_WHOM =
    "SELECT pg_catalog.set_config('stacksaga.on_behalf_of', $1::text, true),"
    "       pg_catalog.set_config('stacksaga.region', coalesce($2::jsonb ->> 'region',"
    "           pg_catalog.current_setting('stacksaga.region', true), 'default'), true),"
    "       pg_catalog.set_config('stacksaga.cluster', coalesce($2::jsonb ->> 'cluster',"
    "           pg_catalog.current_setting('stacksaga.cluster', true), 'default'), true)";
constexpr const char *SQL_COMMIT = "COMMIT";
constexpr const char *SQL_ROLLBACK = "ROLLBACK";

} // namespace

std::span<const Action> actions() {
    return all_actions;
}

const Action *find_action(std::string_view name) {
    const auto found = std::ranges::find_if(
        all_actions, [name](const Action &action) { return action.name == name; });
    return found == all_actions.end() ? nullptr : &*found;
}

ActionRunner::ActionRunner(const asio::any_io_executor &executor, std::string conninfo,
                           Connection::NoticeHandler on_notice)
    : connection_(executor, std::move(conninfo), std::move(on_notice),
                  {SQL_SESSION, role_kinds, statement_deadline}) {}

asio::awaitable<void> ActionRunner::end(const char *sql) {
    co_await connection_.connection().query(sql, no_parameters, connection_.deadline());
}

asio::awaitable<std::string> ActionRunner::call(const Action &action, const std::string &object,
                                                bool is_dry_run, const std::string &user) {
    const Parameters whom{user, object};
    const Parameters what{object, is_dry_run ? "true" : "false"};
    Connection &connection = connection_.connection();
    co_await connection.query(SQL_FOR_WHOM, whom, connection_.deadline());
    const Rows rows =
        co_await query_as(role_kinds, connection, action.sql, what, connection_.deadline());
    co_return rows.size() > 0 && !rows.is_null(0, only_column)
        ? std::string(rows.text(0, only_column))
        : "[]";
}

asio::awaitable<std::string> ActionRunner::run(const Action &action, std::string object,
                                               bool is_dry_run, std::string user) {
    const auto turn = co_await connection_.take_turn();
    co_await connection_.query(SQL_BEGIN, no_parameters);
    std::string answer;
    std::optional<StoreError> failure;
    try {
        answer = co_await call(action, object, is_dry_run, user);
    } catch (const StoreError &error) {
        failure = error;
    }
    if (failure) {
        // A transaction that cannot be rolled back ends with its connection.
        if (connection_.connection().is_open()) {
            try {
                co_await end(SQL_ROLLBACK);
            } catch (const StoreError &) {
                connection_.connection().close();
            }
        }
        throw StoreError(*failure);
    }
    try {
        co_await end(is_dry_run ? SQL_ROLLBACK : SQL_COMMIT);
    } catch (const StoreError &error) {
        if (is_dry_run || error.kind != ErrorClass::reconnect)
            throw;
        failure =
            StoreError(ErrorClass::in_doubt,
                       "the connection was lost during the commit: the action may have "
                       "happened or not",
                       {}, error.what(), "Check the objects of the action before you repeat it.");
    }
    if (failure)
        throw StoreError(*failure);
    co_return answer;
}

} // namespace stacksaga::coordinator
