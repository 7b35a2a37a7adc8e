// The views and actions of the page and the commands, as tables of queries. A view is one query
// that returns one JSON text and costs the database nothing that grows with history; an action is
// one call of stacksaga with one JSON object of arguments.
#pragma once

#include "db/shared_connection.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stacksaga::coordinator {

struct View {
    std::string_view path;
    /// Parameters of the request, in the order of the query's. "payloads" is not the request's: it
    /// says whether the viewer sees payloads. A missing or empty one is NULL.
    std::vector<std::string_view> parameters;
    const char *sql;
    /// The message when the answer is NULL.
    std::string_view missing = {};
    /// Only for viewers who see payloads.
    bool is_for_operators = false;
};

[[nodiscard]] std::span<const View> views();

struct Action {
    std::string_view name;
    /// $1 is the object, $2 whether this is a dry run; returns one JSON list. All changes of a dry
    /// run are rolled back.
    const char *sql;
};

[[nodiscard]] std::span<const Action> actions();
[[nodiscard]] const Action *find_action(std::string_view name);

/// Runs actions over a connection of its own, one at a time, each in a transaction that names the
/// operator. Lifecycle: constructed, run() at any time, close() at the end.
class ActionRunner {
public:
    ActionRunner(const asio::any_io_executor &executor, std::string conninfo,
                 Connection::NoticeHandler on_notice);

    /// Returns the list of the action. Throws StoreError, of class in_doubt when the connection
    /// was lost while the transaction committed.
    asio::awaitable<std::string> run(const Action &action, std::string object, bool is_dry_run,
                                     std::string user);

    void close() noexcept { connection_.close(); }

private:
    asio::awaitable<std::string> call(const Action &action, const std::string &object,
                                      bool is_dry_run, const std::string &user);
    asio::awaitable<void> end(const char *sql);

    SharedConnection connection_;
};

} // namespace stacksaga::coordinator
