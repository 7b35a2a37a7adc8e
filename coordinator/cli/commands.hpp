// The commands that read a database, or act on it, and end.
#pragma once

#include "cli/command_line.hpp"
#include "db/connection.hpp"

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <string>

namespace stacksaga::coordinator {

/// Reads once (check-config reads each of several databases), or with CommandConfig::watch until
/// the process is stopped, and prints to standard output. Returns the exit code: 0, or for status
/// and doctor 1 when there are warnings and 2 when there are errors. Throws StoreError when the
/// database does not answer.
asio::awaitable<int> run_command(asio::io_context &io, const CommandConfig &config);

/// Writes to standard output and flushes it; throws std::runtime_error when that fails.
void print_out(const std::string &text);

} // namespace stacksaga::coordinator
