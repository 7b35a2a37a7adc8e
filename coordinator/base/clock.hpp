// Waiting as an interface: tests replace it with a clock that jumps instead of waiting.
#pragma once

#include "base/types.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>

namespace stacksaga::coordinator {

class Clock {
public:
    Clock() = default;
    Clock(const Clock &) = delete;
    Clock &operator=(const Clock &) = delete;
    virtual ~Clock() = default;

    [[nodiscard]] virtual SteadyTime now() const = 0;

    /// Returns at or after `at`; throws asio::system_error(operation_aborted) when the daemon
    /// stops.
    virtual asio::awaitable<void> wait_until(SteadyTime at) = 0;
};

/// The clock of the daemon.
class SteadyClock final : public Clock {
public:
    explicit SteadyClock(const asio::any_io_executor &executor) : timer_(executor) {}

    [[nodiscard]] SteadyTime now() const override { return std::chrono::steady_clock::now(); }

    asio::awaitable<void> wait_until(SteadyTime at) override {
        timer_.expires_at(at);
        co_await timer_.async_wait(asio::use_awaitable);
    }

private:
    asio::steady_timer timer_;
};

} // namespace stacksaga::coordinator
