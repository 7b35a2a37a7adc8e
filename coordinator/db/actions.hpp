// The actions of the page and the commands, as a table: each is one call of stacksaga with one JSON
// object of arguments. HTTP, the options of the commands and the objects that they make follow it.
#pragma once

#include "db/shared_connection.hpp"

#include <array>
#include <span>
#include <string>
#include <string_view>

namespace stacksaga::coordinator {

/// What an action takes besides its objects and the reason: members of its object.
struct Takes {
    bool spread = false;
    bool until = false;
    bool past_dedupe_retention = false;
};

struct Action {
    std::string_view name;
    /// The members that name the objects: a list of ids, or one text each; none: the database.
    std::array<std::string_view, 2> objects;
    /// $1 is the object, $2 whether this is a dry run; returns one JSON list. All changes of a dry
    /// run are rolled back.
    const char *sql;
    Takes takes{};
    /// The kind of role that may call it. What is not for `support` is for the commands alone, and
    /// may take as long as it needs.
    std::string_view kind = "support";

    [[nodiscard]] bool is_for_support() const noexcept { return kind == "support"; }
};

/// Null where there is no such action.
[[nodiscard]] const Action *find_action(std::string_view name);

/// Runs actions over a connection of its own, one at a time, each in a transaction that names the
/// operator. Lifecycle: constructed, run() at any time, close() at the end.
class ActionRunner {
public:
    /// `is_patient`: no action ends by a time limit.
    ActionRunner(const asio::any_io_executor &executor, std::string conninfo,
                 Connection::NoticeHandler on_notice, bool is_patient = false);

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
