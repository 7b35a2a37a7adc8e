#include "cli/action_commands.hpp"

#include "base/log.hpp"
#include "cli/named_sagas.hpp"
#include "db/actions.hpp"
#include "db/store_error.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stacksaga::coordinator {
namespace {

constexpr const char *SQL_KNOWS_QUEUE =
    "SELECT EXISTS (SELECT FROM stacksaga.queues WHERE queue = $1::text)";
struct AnswerColumns {
    enum { object, before, after, error };
};
constexpr const char *SQL_ANSWER =
    "SELECT pg_catalog.concat_ws(' ', e ->> 'kind', coalesce(e ->> 'saga_id',"
    "           e ->> 'message_id', e ->> 'queue', e ->> 'schedule', e ->> 'subscription', e ->> 'saga',"
    "           e ->> 'object', e ->> 'database', pg_catalog.concat_ws(' ', e ->> 'scope', e ->> 'key')))"
    "           AS object,"
    "       coalesce(e ->> 'status_before', e ->> 'instant') AS before,"
    "       coalesce(e ->> 'status_after', e ->> 'becomes',"
    "           (e ->> 'suspended') || ' sagas suspended') AS after, e ->> 'error' AS error"
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

/// A queue may be paused before anything names it; the warning shows a mistyped name.
asio::awaitable<std::string> doubt_of_queue(Connection &connection, const std::string &queue) {
    const Parameters parameters{queue};
    const Rows rows = co_await read_rows(connection, SQL_KNOWS_QUEUE, parameters);
    if (rows.boolean(0, only_column))
        co_return std::string{};
    co_return fmt::format("No definition names the queue \"{}\", and no step waits in it.\n",
                          escape_controls(queue));
}

/// The object of the action: the objects that the arguments name, and the members that the options
/// give.
asio::awaitable<JsonObject> object_of(Connection &connection, const Action &action,
                                      const CommandConfig &config, CommandOutput &refusal) {
    const ActionWords &words = config.action;
    JsonObject object;
    object.add("reason", words.reason);
    object.add("spread", words.spread);
    object.add("until", words.until);
    object.add("step", words.step);
    object.add("outcome", words.outcome);
    if (!words.output.empty())
        object.add_json("output", words.output);
    if (words.past_dedupe_retention)
        object.add_json("past_dedupe_retention", "true");
    const std::string_view first = action.objects.front();
    if (first == "saga_ids" || first == "saga_id") {
        const std::vector<std::string> ids = co_await targets_of(connection, config, refusal);
        if (first == "saga_ids")
            object.add_json(first, json_list(ids));
        else if (!ids.empty())
            object.add(first, ids.front());
    } else if (first == "message_ids") {
        object.add("subscription", words.subscription);
        if (!words.targets.empty())
            object.add_json(first, json_list(words.targets));
    } else {
        for (std::size_t i = 0; i < words.targets.size(); ++i)
            object.add(action.objects.at(i), words.targets[i]);
    }
    if (first == "queue")
        refusal.error = co_await doubt_of_queue(connection, words.targets.front());
    co_return object;
}

asio::awaitable<std::string> run_action(ActionRunner &runner, const Action &action,
                                        const JsonObject &object, const CommandConfig &config) {
    auto answer =
        runner.run(action, object.text(), !config.action.is_confirmed, config.action.on_behalf_of);
    co_return co_await std::move(answer);
}

} // namespace

asio::awaitable<CommandOutput> action_command(const asio::any_io_executor &executor,
                                              Connection &connection, const CommandConfig &config) {
    CommandOutput output;
    const Action *action = find_action(config.command_name);
    const JsonObject object = co_await object_of(connection, *action, config, output);
    if (output.code != 0)
        co_return output;
    const bool is_all = config.command_name == "redrive" && config.action.targets.empty();
    if (is_all)
        action = find_action("redrive-all");
    ActionRunner runner(
        executor, config.conninfo, [](std::string_view) {}, !action->is_for_support());
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
