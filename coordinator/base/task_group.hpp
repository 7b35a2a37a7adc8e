// Task groups: coroutines that run concurrently, and one that waits for all of them.
#pragma once

#include <asio/awaitable.hpp>

#include <vector>

namespace stacksaga::coordinator {

/// Runs the tasks concurrently until each has ended. Cancelling the group cancels its tasks; a task
/// that fails cancels the others, unless they are `independent`. Throws the exception of the first
/// task that failed.
asio::awaitable<void> run_task_group(std::vector<asio::awaitable<void>> tasks, bool independent);

} // namespace stacksaga::coordinator
