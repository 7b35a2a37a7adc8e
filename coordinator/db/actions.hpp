// What operators do on the page, as data: each action is one call of stacksaga with what the page
// sends as one JSON object.
#pragma once

#include "db/shared_connection.hpp"

#include <span>
#include <string>
#include <string_view>

namespace stacksaga::coordinator {

struct Action {
    std::string_view name;
    /// $1 is the object, $2 whether this is a dry run; returns one JSON list. What a dry run
    /// changes all the same is rolled back.
    const char *sql;
};

[[nodiscard]] std::span<const Action> actions();
[[nodiscard]] const Action *find_action(std::string_view name);

/// Runs actions over a connection of its own, one at a time, each in a transaction that says for
/// whom. Lifecycle: constructed, run() at any time, close() at the end.
class ActionRunner {
public:
    ActionRunner(const asio::any_io_executor &executor, std::string conninfo,
                 Connection::NoticeHandler on_notice);

    /// Returns what the action returns. Throws StoreError, of class in_doubt when the connection
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
