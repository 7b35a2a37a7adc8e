// The actions of the page as commands.
#pragma once

#include "cli/command_line.hpp"
#include "cli/output.hpp"
#include "db/connection.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

namespace stacksaga::coordinator {

/// Runs an action on the objects that the arguments name; without confirmation it is rolled back.
/// The exit code is 1 when an object refuses the action.
asio::awaitable<CommandOutput> action_command(const asio::any_io_executor &executor,
                                              Connection &connection, const CommandConfig &config);

} // namespace stacksaga::coordinator
