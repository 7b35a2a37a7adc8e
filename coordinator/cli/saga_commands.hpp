// The commands for operators: lists of sagas, queues and so on, one saga, and the actions of the
// page.
#pragma once

#include "cli/command_line.hpp"
#include "db/connection.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <string>

namespace stacksaga::coordinator {

/// The output of a command, and its exit code.
struct CommandOutput {
    std::string text{};
    int code = 0;
    std::string error{}; ///< for standard error
};

/// Runs sagas, saga, queues, schedules, definitions or dead-messages on an open connection.
asio::awaitable<CommandOutput> list_command(Connection &connection, const CommandConfig &config);

/// Runs an action on the objects that the arguments name; without confirmation it is rolled back.
/// The exit code is 1 when an object refuses the action.
asio::awaitable<CommandOutput> action_command(const asio::any_io_executor &executor,
                                              Connection &connection, const CommandConfig &config);

} // namespace stacksaga::coordinator
