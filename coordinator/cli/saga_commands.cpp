#include "cli/saga_commands.hpp"

#include "cli/named_sagas.hpp"
#include "db/store_error.hpp"
#include "db/views.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace stacksaga::coordinator {
namespace {

constexpr const char *SQL_SAGAS =
    "SELECT f.saga_id, f.saga, f.key, f.status, f.waits_for,"
    "       pg_catalog.date_trunc('seconds', f.created_at) AS started,"
    "       pg_catalog.date_trunc('seconds', f.updated_at) AS changed"
    "  FROM stacksaga.find_sagas(saga => $1::text, status => $2::text, key_prefix => $3::text,"
    "           attributes => $4::jsonb, max_sagas => $5::integer) AS f";
// For --json: every column, and the same rows as the table.
constexpr const char *ALL_OF_SAGAS =
    "SELECT * FROM stacksaga.find_sagas(saga => $1::text, status => $2::text,"
    "    key_prefix => $3::text, attributes => $4::jsonb, max_sagas => $5::integer)";
constexpr const char *ALL_OF_QUEUES = "SELECT * FROM stacksaga.queues ORDER BY queue";
constexpr const char *ALL_OF_SCHEDULES = "SELECT * FROM stacksaga.schedules ORDER BY schedule";
constexpr const char *ALL_OF_DEFINITIONS =
    "SELECT * FROM stacksaga.definitions ORDER BY saga, version DESC";
constexpr const char *ALL_OF_DEAD_MESSAGES =
    "SELECT * FROM stacksaga.dead_messages ORDER BY dead_since LIMIT 1000";
constexpr const char *SQL_SAGA =
    "SELECT saga_id, saga, version, key, status, current_step, attempt,"
    "       pg_catalog.date_trunc('seconds', paused_until) AS paused_until, created_at, finished_at"
    "  FROM stacksaga.sagas WHERE saga_id = $1::uuid";
constexpr const char *SQL_ATTEMPTS =
    "SELECT step, direction, attempt, status, started_at, finished_at - started_at AS took, worker,"
    "       pg_catalog.concat_ws(': ', error_class, error) AS error"
    "  FROM stacksaga.saga_history WHERE saga_id = $1::uuid ORDER BY started_at, finished_at"
    " LIMIT 500";
constexpr const char *SQL_TIMELINE =
    "SELECT line FROM stacksaga.saga_timeline($1::uuid) WITH ORDINALITY AS t(line, n) ORDER BY n";
constexpr const char *SQL_QUEUES =
    "SELECT queue, waiting, running, completed, failed,"
    "       pg_catalog.date_trunc('seconds', oldest_due) AS oldest_due, " PAUSED ","
    "       max_running, max_running_per_group AS per_group,"
    "       CASE WHEN rate IS NOT NULL THEN rate || ' in ' || rate_interval END AS rate"
    "  FROM stacksaga.queues ORDER BY queue";
constexpr const char *SQL_SCHEDULES =
    "SELECT schedule, saga, cron, timezone, paused, next_run, last_run, failures, last_error"
    "  FROM stacksaga.schedules ORDER BY schedule";
constexpr const char *SQL_DEFINITIONS =
    "SELECT saga, version, definer, pg_catalog.date_trunc('seconds', defined_at) AS defined_at,"
    "       live_sagas, " PAUSED "  FROM stacksaga.definitions WHERE is_current ORDER BY saga";
constexpr const char *SQL_DEAD_MESSAGES =
    "SELECT subscription, topic, key, message_id, pg_catalog.date_trunc('seconds', dead_since) AS dead_since,"
    "       attempts, last_error"
    "  FROM stacksaga.dead_messages ORDER BY dead_since LIMIT 1000";
/// The query of a view of the page, for the same JSON.
const char *sql_of_view(std::string_view path) {
    return std::ranges::find_if(views(), [path](const View &view) { return view.path == path; })
        ->sql;
}

/// The rows as a JSON list under this name.
std::string json_of(std::string_view name, const char *sql) {
    return fmt::format("SELECT pg_catalog.json_build_object('{}',"
                       "           coalesce(pg_catalog.json_agg(pg_catalog.to_json(x)), '[]'))"
                       "  FROM ({}) AS x",
                       name, sql);
}

/// A table, or as JSON the rows of `sql_all` under this name.
asio::awaitable<CommandOutput> print(Connection &connection, const CommandConfig &config,
                                     std::string_view name, const char *sql, const char *sql_all,
                                     const Parameters &parameters) {
    if (!config.json) {
        const Rows rows = co_await read_rows(connection, sql, parameters);
        co_return CommandOutput{.text = table_of(rows)};
    }
    const std::string sql_json = json_of(name, sql_all);
    const Rows rows = co_await read_rows(connection, sql_json.c_str(), parameters);
    co_return CommandOutput{fmt::format("{}\n", rows.text(0, only_column)), 0};
}

asio::awaitable<CommandOutput> one_saga(Connection &connection, const CommandConfig &config) {
    const Named named = co_await find_named(connection, config.filter, config.key);
    if (named.ids.size() != 1)
        co_return not_one(config.key, named);
    const Parameters id{named.ids.front()};
    if (config.json) {
        const Parameters with_payloads{named.ids.front(), "true"};
        const Rows rows = co_await read_rows(connection, sql_of_view("/api/saga"), with_payloads);
        if (rows.size() == 0)
            co_return not_one(config.key, {});
        co_return CommandOutput{fmt::format("{}\n", rows.text(0, only_column)), 0};
    }
    const Rows saga = co_await read_rows(connection, SQL_SAGA, id);
    if (saga.size() == 0)
        co_return not_one(config.key, {});
    const Rows attempts = co_await read_rows(connection, SQL_ATTEMPTS, id);
    const Rows timeline = co_await read_rows(connection, SQL_TIMELINE, id);
    CommandOutput output{table_of(saga) + "\nAttempts\n" + table_of(attempts) + "\nTimeline\n", 0};
    for (int row = 0; row < timeline.size(); ++row)
        output.text += escape_controls(timeline.text(row, only_column)) + "\n";
    co_return output;
}

asio::awaitable<CommandOutput> list(Connection &connection, const CommandConfig &config) {
    const Parameters filter = parameters_of(config.filter);
    switch (config.command) {
    case Command::sagas:
        co_return co_await print(connection, config, "sagas", SQL_SAGAS, ALL_OF_SAGAS, filter);
    case Command::queues:
        co_return co_await print(connection, config, "queues", SQL_QUEUES, ALL_OF_QUEUES,
                                 no_parameters);
    case Command::schedules:
        co_return co_await print(connection, config, "schedules", SQL_SCHEDULES, ALL_OF_SCHEDULES,
                                 no_parameters);
    case Command::definitions:
        co_return co_await print(connection, config, "definitions", SQL_DEFINITIONS,
                                 ALL_OF_DEFINITIONS, no_parameters);
    case Command::dead_messages:
        co_return co_await print(connection, config, "dead_messages", SQL_DEAD_MESSAGES,
                                 ALL_OF_DEAD_MESSAGES, no_parameters);
    default:
        co_return co_await one_saga(connection, config);
    }
}

} // namespace

asio::awaitable<CommandOutput> list_command(Connection &connection, const CommandConfig &config) {
    CommandOutput output;
    try {
        output = co_await list(connection, config);
    } catch (const StoreError &error) {
        // A status that is no_parameters, say: it will not be one later.
        if (error.kind != ErrorClass::refused)
            throw;
        output = refused(1, explain(error));
    }
    co_return output;
}

} // namespace stacksaga::coordinator
