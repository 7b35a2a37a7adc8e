// The commands that list sagas, queues and so on, and print one saga.
#pragma once

#include "cli/command_line.hpp"
#include "cli/output.hpp"
#include "db/connection.hpp"

#include <asio/awaitable.hpp>

namespace stacksaga::coordinator {

/// Runs sagas, saga, queues, schedules, definitions or dead-messages on an open connection.
asio::awaitable<CommandOutput> list_command(Connection &connection, const CommandConfig &config);

} // namespace stacksaga::coordinator
