// Several coroutines at the same time, and one that waits for them all.
#pragma once

#include <asio/awaitable.hpp>

#include <vector>

namespace stacksaga::coordinator {

/// Runs the tasks side by side until each has ended; when this is cancelled they are, and when one
/// fails the others are, unless `independent`. Throws what the first that failed threw.
asio::awaitable<void> side_by_side(std::vector<asio::awaitable<void>> tasks, bool independent);

} // namespace stacksaga::coordinator
