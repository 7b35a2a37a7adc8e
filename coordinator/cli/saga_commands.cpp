#include "cli/saga_commands.hpp"

#include "base/log.hpp"
#include "cli/output.hpp"
#include "db/operations.hpp"
#include "db/store_error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace stacksaga::coordinator {
namespace {

/// Columns of the queries of sagas that begin with the id.
constexpr int saga_id_column = 0;
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
/// find_sagas() may find many sagas whose keys begin with this one.
constexpr const char *SQL_SAGAS_OF_KEY =
    "SELECT s.saga_id, s.saga, s.key, s.status FROM stacksaga.sagas AS s"
    " WHERE s.key = $2::text AND ($1::text IS NULL OR s.saga = $1)"
    " ORDER BY s.created_at DESC, s.saga_id DESC LIMIT 1000";
constexpr const char *SQL_SAGA =
    "SELECT saga_id, saga, version, key, status, current_step, attempt,"
    "       pg_catalog.date_trunc('seconds', paused_until) AS paused_until, created_at, finished_at"
    "  FROM stacksaga.sagas WHERE saga_id = $1::uuid";
constexpr const char *SQL_ATTEMPTS =
    "SELECT step, direction, attempt, status, started_at, finished_at - started_at AS took, worker,"
    "       coalesce(error_class || ': ' || error, '') AS error"
    "  FROM stacksaga.saga_history WHERE saga_id = $1::uuid ORDER BY started_at, finished_at"
    " LIMIT 500";
constexpr const char *SQL_TIMELINE =
    "SELECT line FROM stacksaga.saga_timeline($1::uuid) WITH ORDINALITY AS t(line, n) ORDER BY n";
constexpr const char *SQL_QUEUES =
    "SELECT queue, waiting, running, completed, failed,"
    "       pg_catalog.date_trunc('seconds', oldest_due) AS oldest_due, paused,"
    "       max_running, max_running_per_group AS per_group,"
    "       CASE WHEN rate IS NOT NULL THEN rate || ' in ' || rate_interval END AS rate"
    "  FROM stacksaga.queues ORDER BY queue";
constexpr const char *SQL_KNOWS_QUEUE =
    "SELECT EXISTS (SELECT FROM stacksaga.queues WHERE queue = $1::text)";
constexpr const char *SQL_SCHEDULES =
    "SELECT schedule, saga, cron, timezone, paused, next_run, last_run, failures, last_error"
    "  FROM stacksaga.schedules ORDER BY schedule";
constexpr const char *SQL_DEFINITIONS =
    "SELECT saga, version, definer, pg_catalog.date_trunc('seconds', defined_at) AS defined_at, live_sagas"
    "  FROM stacksaga.definitions WHERE is_current ORDER BY saga";
constexpr const char *SQL_DEAD_MESSAGES =
    "SELECT subscription, topic, key, message_id, pg_catalog.date_trunc('seconds', dead_since) AS dead_since,"
    "       attempts, last_error"
    "  FROM stacksaga.dead_messages ORDER BY dead_since LIMIT 1000";
struct AnswerColumns {
    enum { object, before, after, error };
};
constexpr const char *SQL_ANSWER =
    "SELECT coalesce(e ->> 'saga_id', e ->> 'message_id', e ->> 'queue', e ->> 'schedule')"
    "           AS object, e ->> 'status_before' AS before, e ->> 'status_after' AS after,"
    "       e ->> 'error' AS error"
    "  FROM pg_catalog.jsonb_array_elements($1::jsonb) AS e";

/// The rows of two answers without those that are in both; how many the second has, and how many of
/// them are new.
struct JoinColumns {
    enum { rows, second, added };
};
constexpr const char *SQL_JOIN =
    "SELECT coalesce(pg_catalog.jsonb_agg(x.e ORDER BY x.n), '[]'),"
    "       pg_catalog.jsonb_array_length($2::jsonb),"
    "       pg_catalog.count(*) FILTER (WHERE x.is_second)"
    "  FROM (SELECT e, n, false AS is_second"
    "          FROM pg_catalog.jsonb_array_elements($1::jsonb) WITH ORDINALITY AS a(e, n)"
    "        UNION ALL"
    "        SELECT e, n + pg_catalog.jsonb_array_length($1::jsonb), true"
    "          FROM pg_catalog.jsonb_array_elements($2::jsonb) WITH ORDINALITY AS b(e, n)"
    "         WHERE e ->> 'message_id' IS NULL OR NOT EXISTS ("
    "               SELECT FROM pg_catalog.jsonb_array_elements($1::jsonb) AS c(e)"
    "                WHERE c.e ->> 'message_id' = b.e ->> 'message_id')) AS x";
/// Messages of one call of redrive_messages().
constexpr std::int64_t redrive_max = 1000;

std::optional<std::string> null_if_empty(const std::string &text) {
    return text.empty() ? std::nullopt : std::optional(text);
}

bool is_uuid(std::string_view text) {
    constexpr std::size_t length = 36;
    return text.size() == length && std::ranges::count(text, '-') == 4 &&
           text.find_first_not_of("0123456789abcdefABCDEF-") == std::string_view::npos;
}

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

Parameters parameters_of(const SagaFilter &filter) {
    return {null_if_empty(filter.saga), null_if_empty(filter.status),
            null_if_empty(filter.key_prefix), null_if_empty(filter.attributes),
            std::to_string(filter.max)};
}

/// The sagas that a word names: one by its id, those of a key otherwise.
struct Named {
    std::vector<std::string> ids;
    std::string table; ///< of several, to choose from
};

asio::awaitable<Named> find_named(Connection &connection, const SagaFilter &filter,
                                  const std::string &word) {
    Named named;
    if (is_uuid(word)) {
        named.ids.push_back(word);
        co_return named;
    }
    const Parameters parameters{null_if_empty(filter.saga), word};
    const Rows rows = co_await read_rows(connection, SQL_SAGAS_OF_KEY, parameters);
    for (int row = 0; row < rows.size(); ++row)
        named.ids.emplace_back(rows.text(row, saga_id_column));
    named.table = table_of(rows);
    co_return named;
}

CommandOutput refused(int code, std::string error) {
    return {.text = {}, .code = code, .error = std::move(error)};
}

CommandOutput not_one(const std::string &word, const Named &named) {
    if (named.ids.empty())
        return refused(1, fmt::format("no saga has the key or id \"{}\"\n", escape_controls(word)));
    return refused(1, fmt::format("several sagas have the key \"{}\"; name one by its id\n{}",
                                  escape_controls(word), named.table));
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

std::string json_list(const std::vector<std::string> &texts) {
    std::string list;
    for (const std::string &text : texts)
        list += (list.empty() ? "" : ", ") + quoted_json(text);
    return "[" + list + "]";
}

/// The JSON object of an action, of members that are not empty.
class JsonObject {
public:
    void add(std::string_view name, const std::string &text) {
        if (!text.empty())
            add_json(name, quoted_json(text));
    }
    void add_json(std::string_view name, const std::string &json) {
        text_ += fmt::format("{}\"{}\": {}", text_.empty() ? "" : ", ", name, json);
    }
    [[nodiscard]] std::string text() const { return "{" + text_ + "}"; }

private:
    std::string text_;
};

/// The sagas that an action names, or those that its filter finds.
asio::awaitable<std::vector<std::string>>
targets_of(Connection &connection, const CommandConfig &config, CommandOutput &refusal) {
    std::vector<std::string> ids;
    for (const std::string &word : config.action.targets) {
        const Named named = co_await find_named(connection, config.filter, word);
        if (named.ids.size() != 1) {
            refusal = not_one(word, named);
            co_return ids;
        }
        ids.push_back(named.ids.front());
    }
    if (!config.action.targets.empty())
        co_return ids;
    if (config.filter.is_empty()) {
        refusal = refused(exit_code::usage, "name sagas by id or key, or choose them with --name, "
                                            "--status or --key\n");
        co_return ids;
    }
    const Parameters parameters = parameters_of(config.filter);
    const Rows rows = co_await read_rows(connection, SQL_SAGAS, parameters);
    for (int row = 0; row < rows.size(); ++row)
        ids.emplace_back(rows.text(row, saga_id_column));
    if (ids.empty())
        refusal = refused(1, "no saga fits\n");
    else if (std::ssize(ids) == config.filter.max)
        refusal.error = fmt::format("These are the newest {} sagas that fit; there may be more. "
                                    "Repeat the command, or choose more by --max.\n",
                                    config.filter.max);
    co_return ids;
}

/// A queue may be paused before anything names it; the warning shows a mistyped name.
asio::awaitable<std::string> doubt_of_queue(Connection &connection, const std::string &queue) {
    const Parameters parameters{queue};
    const Rows rows = co_await read_rows(connection, SQL_KNOWS_QUEUE, parameters);
    if (rows.boolean(0, only_column))
        co_return std::string{};
    co_return fmt::format("No definition names the queue \"{}\", and no step waits in it.\n",
                          escape_controls(queue));
}

asio::awaitable<JsonObject> object_of(Connection &connection, const CommandConfig &config,
                                      CommandOutput &refusal) {
    const ActionWords &words = config.action;
    const std::string &name = config.command_name;
    JsonObject object;
    object.add("reason", words.reason);
    object.add("spread", words.spread);
    object.add("subscription", words.subscription);
    if (words.past_dedupe_retention)
        object.add_json("past_dedupe_retention", "true");
    if (name == "redrive" || name == "discard") {
        if (!words.targets.empty())
            object.add_json("message_ids", json_list(words.targets));
        co_return object;
    }
    if (name.ends_with("-queue")) {
        object.add("queue", words.targets.front());
        refusal.error = co_await doubt_of_queue(connection, words.targets.front());
        co_return object;
    }
    if (name.ends_with("-schedule")) {
        object.add("schedule", words.targets.front());
        co_return object;
    }
    const std::vector<std::string> ids = co_await targets_of(connection, config, refusal);
    if (name == "resolve" && ids.size() == 1) {
        object.add("saga_id", ids.front());
        object.add("step", words.step);
        object.add("outcome", words.outcome);
        if (!words.output.empty())
            object.add_json("output", words.output);
    } else {
        object.add_json("saga_ids", json_list(ids));
    }
    co_return object;
}

asio::awaitable<std::string> run_action(ActionRunner &runner, const Action &action,
                                        const JsonObject &object, const CommandConfig &config) {
    auto answer =
        runner.run(action, object.text(), !config.action.is_confirmed, config.action.on_behalf_of);
    co_return co_await std::move(answer);
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

asio::awaitable<CommandOutput> action_command(const asio::any_io_executor &executor,
                                              Connection &connection, const CommandConfig &config) {
    CommandOutput output;
    const JsonObject object = co_await object_of(connection, config, output);
    if (output.code != 0)
        co_return output;
    const bool is_all = config.command_name == "redrive" && config.action.targets.empty();
    const Action *action = find_action(is_all ? "redrive-all" : config.command_name);
    ActionRunner runner(executor, config.conninfo, [](std::string_view) {});
    std::string answer = "[]";
    std::int64_t done = 0;
    try {
        // All messages of a subscription are redriven in pages; messages that fail again in between
        // are left.
        for (bool is_last = false; !is_last;) {
            const std::string page = co_await run_action(runner, *action, object, config);
            const Parameters pages{answer, page};
            const Rows both = co_await read_rows(connection, SQL_JOIN, pages);
            answer = both.text(0, JoinColumns::rows);
            const bool is_full = is_all && both.int64(0, JoinColumns::second) >= redrive_max;
            is_last =
                !is_full || !config.action.is_confirmed || both.int64(0, JoinColumns::added) == 0;
            done += both.int64(0, JoinColumns::added);
            if (is_full && !config.action.is_confirmed)
                output.error = fmt::format("These are the oldest {}; --yes redrives all.\n", done);
        }
    } catch (const StoreError &error) {
        if (error.kind != ErrorClass::refused)
            throw;
        output = refused(1, (done > 0 ? fmt::format("{} were redriven before this:\n", done) : "") +
                                explain(error));
    }
    runner.close();
    if (output.code != 0)
        co_return output;
    const Parameters parameters{answer};
    const Rows rows = co_await read_rows(connection, SQL_ANSWER, parameters);
    for (int row = 0; row < rows.size(); ++row)
        if (!rows.is_null(row, AnswerColumns::error))
            output.code = 1;
    if (config.json)
        output.text =
            fmt::format("{{\"dry_run\": {}, \"rows\": {}}}\n", !config.action.is_confirmed, answer);
    else
        output.text = table_of(rows) + (config.action.is_confirmed
                                            ? ""
                                            : "Nothing was done: this was a dry run. Add --yes.\n");
    co_return output;
}

} // namespace stacksaga::coordinator
