#include "db/actions.hpp"

#include <algorithm>
#include <array>

// A call of one of the functions that act on many sagas.
#define ON_SAGAS(FUNCTION, MORE)                                                                   \
    "SELECT coalesce(pg_catalog.json_agg(pg_catalog.to_json(r)), '[]')"                            \
    "  FROM stacksaga." FUNCTION "(ARRAY(SELECT e::uuid"                                           \
    "           FROM pg_catalog.jsonb_array_elements_text($1::jsonb -> 'saga_ids') AS e),"         \
    "           $1::jsonb ->> 'reason', $2::boolean" MORE ") AS r"
#define SPREAD ", coalesce(($1::jsonb ->> 'spread')::interval, '0')"

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

constexpr std::array all{
    Action{"retry", ON_SAGAS("retry_sagas", SPREAD)},
    Action{"resume", ON_SAGAS("resume_sagas", SPREAD)},
    // A page of a group of the page's problems: sagas behind an id, messages the oldest first.
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
        "         ORDER BY d.dead_since, d.message_id LIMIT 1000) AS m(id),"
        "       LATERAL stacksaga.redrive_message($1::jsonb ->> 'subscription', m.id,"
        "           $1::jsonb ->> 'reason') AS r"
        " WHERE $2::boolean IS NOT NULL"},
    Action{"cancel", ON_SAGAS("cancel_sagas", "")},
    Action{"suspend", ON_SAGAS("suspend_sagas", "")},
    Action{"resolve", "SELECT pg_catalog.json_build_array(pg_catalog.json_build_object("
                      "           'saga_id', $1::jsonb ->> 'saga_id', 'status_after',"
                      "           stacksaga.resolve_step(($1::jsonb ->> 'saga_id')::uuid,"
                      "               $1::jsonb ->> 'step', $1::jsonb ->> 'outcome',"
                      "               $1::jsonb -> 'output', $1::jsonb ->> 'reason')))"
                      " WHERE $2::boolean IS NOT NULL"},
    Action{"redrive", ON_MESSAGES("redrive_message", ", $1::jsonb ->> 'reason'")},
    Action{"discard", ON_MESSAGES("discard_message", ", $1::jsonb ->> 'reason'")},
    Action{"redrive-all", "SELECT coalesce(pg_catalog.json_agg(pg_catalog.to_json(r)), '[]')"
                          "  FROM stacksaga.redrive_messages($1::jsonb ->> 'subscription',"
                          "           $1::jsonb ->> 'topic',"
                          "           coalesce(($1::jsonb ->> 'max_messages')::integer, 1000),"
                          "           $1::jsonb ->> 'reason', $2::boolean" SPREAD ") AS r"},
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
    return all;
}

const Action *find_action(std::string_view name) {
    const auto found =
        std::ranges::find_if(all, [name](const Action &action) { return action.name == name; });
    return found == all.end() ? nullptr : &*found;
}

ActionRunner::ActionRunner(const asio::any_io_executor &executor, std::string conninfo,
                           Connection::NoticeHandler on_notice)
    : connection_(executor, std::move(conninfo), std::move(on_notice),
                  {SQL_SESSION, role_kinds, statement_deadline}) {}

asio::awaitable<void> ActionRunner::end(const char *sql) {
    const Parameters none;
    co_await connection_.connection().query(sql, none, connection_.deadline());
}

asio::awaitable<std::string> ActionRunner::call(const Action &action, const std::string &object,
                                                bool is_dry_run, const std::string &user) {
    const Parameters whom{user, object};
    const Parameters what{object, is_dry_run ? "true" : "false"};
    Connection &connection = connection_.connection();
    co_await connection.query(SQL_FOR_WHOM, whom, connection_.deadline());
    const Rows rows =
        co_await query_as(role_kinds, connection, action.sql, what, connection_.deadline());
    co_return rows.size() > 0 && !rows.is_null(0, 0) ? std::string(rows.text(0, 0)) : "[]";
}

asio::awaitable<std::string> ActionRunner::run(const Action &action, std::string object,
                                               bool is_dry_run, std::string user) {
    const auto turn = co_await connection_.take_turn();
    const Parameters none;
    co_await connection_.query(SQL_BEGIN, none);
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
        failure = StoreError(ErrorClass::in_doubt,
                             "the connection was lost during the commit: the action may have "
                             "happened or not",
                             {}, error.what(), "Look at what it acts on before you repeat it.");
    }
    if (failure)
        throw StoreError(*failure);
    co_return answer;
}

} // namespace stacksaga::coordinator
