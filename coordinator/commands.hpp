// The commands that look and end: status, ring, locate, doctor, check-config.
#pragma once

#include "config.hpp"
#include "connection.hpp"

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <string>

namespace stacksaga::coordinator {

/// Asks once (check-config each of several databases), or until the process is told to stop where
/// Config::watch says so, and prints to standard output. The exit code: 0, for status and doctor 1
/// when there are warnings and 2 when there are errors. What cannot be asked is thrown as
/// StoreError.
asio::awaitable<int> look(asio::io_context &io, const Config &config);

/// Rows as a table: a line of names, a line under it, the rows, columns padded in characters.
[[nodiscard]] std::string format_table(const std::vector<std::string> &names,
                                       const std::vector<std::vector<std::string>> &rows);

/// Writes to standard output at once; throws std::runtime_error where it cannot be written to.
void print_out(const std::string &text);

} // namespace stacksaga::coordinator
