// Shared by the commands: queries with the rights of the kind monitor, and their rows as tables
// whose values cannot control a terminal.
#pragma once

#include "db/connection.hpp"

#include <asio/awaitable.hpp>

#include <string>
#include <string_view>
#include <vector>

/// The column of a query: until when something is paused; "paused" where only an operator ends it.
#define PAUSED                                                                                     \
    "CASE WHEN paused THEN coalesce('until ' || pg_catalog.date_trunc('seconds', paused_until),"   \
    "                               'paused') END AS paused"

namespace stacksaga::coordinator {

/// The output of a command, and its exit code.
struct CommandOutput {
    std::string text{};
    int code = 0;
    std::string error{}; ///< for standard error
};

/// An output that is an error.
[[nodiscard]] CommandOutput refused(int code, std::string error);

/// Control characters as \n, \t or \xNN, so that a value stays in its line and moves no cursor.
[[nodiscard]] std::string escape_controls(std::string_view text);

/// Rows as a table: a line of names, a line under it, the rows, columns padded in characters;
/// control characters are escaped.
[[nodiscard]] std::string format_table(const std::vector<std::string> &names,
                                       const std::vector<std::vector<std::string>> &rows);

/// Longest wait for one statement: a server may be busy or its tables large.
constexpr Duration command_deadline = std::chrono::seconds(60);

/// Runs a query of a command. Throws StoreError; where the role lacks a privilege, its hint is the
/// grant of the kind monitor.
asio::awaitable<Rows> read_rows(Connection &connection, const char *sql,
                                const Parameters &parameters);

/// Rows as format_table() writes them.
[[nodiscard]] std::string table_of(const Rows &rows);

} // namespace stacksaga::coordinator
