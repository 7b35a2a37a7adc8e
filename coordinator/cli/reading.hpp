// What the commands share: a query with the rights of the kind monitor, and its rows as a table.
#pragma once

#include "db/connection.hpp"

#include <asio/awaitable.hpp>

#include <string>

namespace stacksaga::coordinator {

/// A server may be busy or its tables large: a command waits so long for one statement.
constexpr Duration command_deadline = std::chrono::seconds(60);

/// Runs a query of a command. Throws StoreError; where the role lacks a privilege, its hint is the
/// grant of the kind monitor.
asio::awaitable<Rows> read_rows(Connection &connection, const char *sql,
                                const Parameters &parameters);

/// Rows as format_table() writes them.
[[nodiscard]] std::string table_of(const Rows &rows);

} // namespace stacksaga::coordinator
