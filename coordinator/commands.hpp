// The commands that read a database and end: status, ring, locate, doctor, check-config.
#pragma once

#include "config.hpp"
#include "connection.hpp"

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <string>

namespace stacksaga::coordinator {

/// Reads once (check-config reads each of several databases), or with Config::watch until the
/// process is stopped, and prints to standard output. Returns the exit code: 0, or for status and
/// doctor 1 when there are warnings and 2 when there are errors. Throws StoreError when the
/// database does not answer.
asio::awaitable<int> run_command(asio::io_context &io, const Config &config);

/// Rows as a table: a line of names, a line under it, the rows, columns padded in characters.
[[nodiscard]] std::string format_table(const std::vector<std::string> &names,
                                       const std::vector<std::vector<std::string>> &rows);

/// Writes to standard output and flushes it; throws std::runtime_error when that fails.
void print_out(const std::string &text);

} // namespace stacksaga::coordinator
