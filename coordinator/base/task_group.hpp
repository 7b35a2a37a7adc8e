// Task groups: coroutines that run concurrently, and one that waits for all of them.
#pragma once

#include <asio/awaitable.hpp>
#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/redirect_error.hpp>
#include <asio/steady_timer.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <exception>
#include <vector>

namespace stacksaga::coordinator {

/// Runs the tasks concurrently until each has ended. Cancelling the group cancels its tasks; a task
/// that fails cancels the others, unless they are `independent`. Throws the exception of the first
/// task that failed.
inline asio::awaitable<void> run_task_group(std::vector<asio::awaitable<void>> tasks,
                                            bool independent) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto executor = co_await asio::this_coro::executor;
    asio::steady_timer ended(executor, asio::steady_timer::time_point::max());
    std::vector<asio::cancellation_signal> stops(tasks.size());
    const auto stop_all = [&stops] {
        for (asio::cancellation_signal &stop : stops)
            stop.emit(asio::cancellation_type::terminal);
    };
    std::size_t running = tasks.size();
    std::exception_ptr failure;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
        asio::co_spawn(
            executor, std::move(tasks[i]),
            asio::bind_cancellation_slot(stops[i].slot(), [&](const std::exception_ptr &thrown) {
                if (thrown && !failure)
                    failure = thrown;
                if (--running == 0)
                    ended.cancel();
                else if (thrown && !independent)
                    stop_all();
            }));
    }
    while (running > 0) {
        asio::error_code woken;
        co_await ended.async_wait(asio::redirect_error(asio::use_awaitable, woken));
        if (running > 0)
            stop_all();
    }
    if (failure)
        std::rethrow_exception(failure);
}

} // namespace stacksaga::coordinator
