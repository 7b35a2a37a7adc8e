#include "db/actions.hpp"

#include <algorithm>

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

// A call of one of those on the parked sagas of an error.
#define ON_GROUP(FUNCTION)                                                                         \
    "SELECT coalesce(pg_catalog.json_agg(pg_catalog.to_json(r)), '[]')"                            \
    "  FROM stacksaga." FUNCTION "(ARRAY("                                                         \
    "           SELECT stacksaga_internal.parked_of_pattern("                                      \
    "               $1::jsonb ->> 'pattern', ($1::jsonb ->> 'after')::uuid)),"                     \
    "           $1::jsonb ->> 'reason', $2::boolean" SPREAD ") AS r"

// A call of a function of a name and a reason.
#define ON_NAME(FUNCTION, NAME, MORE)                                                              \
    "SELECT pg_catalog.json_build_array("                                                          \
    "           pg_catalog.json_build_object('" NAME "', $1::jsonb ->> '" NAME "'))"               \
    "  FROM stacksaga." FUNCTION "($1::jsonb ->> '" NAME "', $1::jsonb ->> 'reason'" MORE ") AS d" \
    " WHERE $2::boolean IS NOT NULL"
#define UNTIL ", ($1::jsonb ->> 'until')::timestamptz"

namespace stacksaga::coordinator {
namespace {

constexpr std::array all_actions{
    Action{"retry", {"saga_ids"}, ON_SAGAS("retry_sagas", SPREAD), {.spread = true}},
    Action{"resume", {"saga_ids"}, ON_SAGAS("resume_sagas", SPREAD), {.spread = true}},
    Action{"compensate", {"saga_ids"}, ON_SAGAS("compensate_sagas", SPREAD), {.spread = true}},
    Action{"cancel", {"saga_ids"}, ON_SAGAS("cancel_sagas", "")},
    Action{"suspend", {"saga_ids"}, ON_SAGAS("suspend_sagas", "")},
    // A batch of one group of the page's problems: sagas after an id, messages the oldest first,
    // without those that have lost their payload, which are refused and stay in the group.
    Action{"retry-group", {"pattern", "after"}, ON_GROUP("retry_sagas"), {.spread = true}},
    Action{
        "compensate-group", {"pattern", "after"}, ON_GROUP("compensate_sagas"), {.spread = true}},
    Action{
        "redrive-group",
        {"subscription", "pattern"},
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
        " WHERE $2::boolean IS NOT NULL",
        {.past_dedupe_retention = true}},
    Action{"resolve",
           {"saga_id"},
           "SELECT pg_catalog.json_build_array(pg_catalog.json_build_object("
           "           'saga_id', $1::jsonb ->> 'saga_id', 'status_after',"
           "           stacksaga.resolve_step(($1::jsonb ->> 'saga_id')::uuid,"
           "               $1::jsonb ->> 'step', $1::jsonb ->> 'outcome',"
           "               $1::jsonb -> 'output', $1::jsonb ->> 'reason')))"
           " WHERE $2::boolean IS NOT NULL"},
    Action{"redrive",
           {"message_ids"},
           ON_MESSAGES("redrive_message", ", $1::jsonb ->> 'reason'" PAST),
           {.past_dedupe_retention = true}},
    Action{"discard", {"message_ids"}, ON_MESSAGES("discard_message", ", $1::jsonb ->> 'reason'")},
    Action{"redrive-all",
           {"subscription"},
           "SELECT coalesce(pg_catalog.json_agg(pg_catalog.to_json(r)), '[]')"
           "  FROM stacksaga.redrive_messages($1::jsonb ->> 'subscription',"
           "           $1::jsonb ->> 'topic',"
           "           coalesce(($1::jsonb ->> 'max_messages')::integer, 1000),"
           "           $1::jsonb ->> 'reason', $2::boolean" SPREAD PAST ") AS r",
           {.spread = true, .past_dedupe_retention = true}},
    Action{"pause-queue", {"queue"}, ON_NAME("pause_queue", "queue", UNTIL), {.until = true}},
    Action{"resume-queue", {"queue"}, ON_NAME("resume_queue", "queue", "")},
    Action{
        "pause-definition", {"saga"}, ON_NAME("pause_definition", "saga", UNTIL), {.until = true}},
    Action{"resume-definition", {"saga"}, ON_NAME("resume_definition", "saga", "")},
    Action{"pause-schedule", {"schedule"}, ON_NAME("pause_schedule", "schedule", "")},
    Action{"resume-schedule", {"schedule"}, ON_NAME("resume_schedule", "schedule", "")},
    Action{"pause-subscription",
           {"subscription"},
           ON_NAME("pause_subscription", "subscription", UNTIL),
           {.until = true}},
    Action{"resume-subscription",
           {"subscription"},
           ON_NAME("resume_subscription", "subscription", "")},
    Action{"forget",
           {"scope", "key"},
           "SELECT pg_catalog.json_build_array(pg_catalog.json_build_object("
           "           'scope', $1::jsonb ->> 'scope', 'key', $1::jsonb ->> 'key'))"
           "  FROM stacksaga.idempotency_forget($1::jsonb ->> 'scope', $1::jsonb ->> 'key',"
           "           $1::jsonb ->> 'reason') AS d"
           " WHERE $2::boolean IS NOT NULL"},
    Action{"reset-instants",
           {},
           "SELECT coalesce(pg_catalog.json_agg(pg_catalog.to_json(r)), '[]')"
           "  FROM stacksaga.reset_instants($1::jsonb ->> 'reason', $2::boolean) AS r",
           {},
           "operator"},
    Action{"forget-work",
           {"database"},
           "SELECT pg_catalog.json_build_array(pg_catalog.json_build_object("
           "           'database', $1::jsonb ->> 'database', 'suspended', stacksaga.forget_work("
           "               $1::jsonb ->> 'reason', $1::jsonb ->> 'database')))"
           " WHERE $2::boolean IS NOT NULL",
           {},
           "operator"},
};

constexpr std::array<std::string_view, 1> role_kinds{"support"};

constexpr const char *SQL_SESSION =
    "SELECT pg_catalog.set_config('statement_timeout', '15s', false),"
    "       pg_catalog.set_config('lock_timeout', '5s', false),"
    "       pg_catalog.set_config('idle_in_transaction_session_timeout', '30s', false)";
constexpr const char *SQL_PATIENT_SESSION =
    "SELECT pg_catalog.set_config('statement_timeout', '0', false),"
    "       pg_catalog.set_config('lock_timeout', '5s', false),"
    "       pg_catalog.set_config('idle_in_transaction_session_timeout', '30s', false)";
constexpr SessionSettings quick_session{SQL_SESSION, role_kinds, std::chrono::seconds(20)};
constexpr SessionSettings patient_session{SQL_PATIENT_SESSION, role_kinds, std::chrono::days(1)};

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

const Action *find_action(std::string_view name) {
    const auto found = std::ranges::find_if(
        all_actions, [name](const Action &action) { return action.name == name; });
    return found == all_actions.end() ? nullptr : &*found;
}

ActionRunner::ActionRunner(const asio::any_io_executor &executor, std::string conninfo,
                           Connection::NoticeHandler on_notice, bool is_patient)
    : connection_(executor, std::move(conninfo), std::move(on_notice),
                  is_patient ? patient_session : quick_session) {}

asio::awaitable<void> ActionRunner::end(const char *sql) {
    co_await connection_.connection().query(sql, no_parameters, connection_.deadline());
}

asio::awaitable<std::string> ActionRunner::call(const Action &action, const std::string &object,
                                                bool is_dry_run, const std::string &user) {
    const Parameters whom{user, object};
    const Parameters what{object, is_dry_run ? "true" : "false"};
    Connection &connection = connection_.connection();
    co_await connection.query(SQL_FOR_WHOM, whom, connection_.deadline());
    const RoleKinds kinds(&action.kind, 1);
    const Rows rows =
        co_await query_as(kinds, connection, action.sql, what, connection_.deadline());
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
