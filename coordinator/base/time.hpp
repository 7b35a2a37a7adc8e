// Time: its units, waiting as an interface, which tests replace with a clock that jumps instead of
// waiting, and the pauses between attempts.
//
// Instants and durations are whole microseconds, as PostgreSQL keeps them. An Instant is always a
// time of the *database* clock; the clock of this machine decides nothing, it only measures waiting
// (std::chrono::steady_clock) and dates log lines.
#pragma once

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>

namespace stacksaga::coordinator {

using Duration = std::chrono::microseconds;
using Instant = std::chrono::sys_time<Duration>;
using SteadyTime = std::chrono::steady_clock::time_point;

inline std::int64_t milliseconds(std::chrono::steady_clock::duration duration) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

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

/// Lifecycle: one per operation that is retried; reset() after a success. Deterministic for a seed.
/// Each wait is drawn from the upper half of the current step, so that daemons that lost the same
/// server do not return all at once or immediately.
class Backoff {
public:
    Backoff(Duration initial, Duration cap, std::uint64_t seed)
        : initial_(initial), cap_(cap), step_(initial), random_(seed) {}

    [[nodiscard]] Duration next() {
        std::uniform_int_distribution<Duration::rep> drawn(step_.count() / 2, step_.count());
        const Duration wait{drawn(random_)};
        step_ = std::min(cap_, step_ * 2);
        return wait;
    }

    void reset() noexcept { step_ = initial_; }

private:
    Duration initial_;
    Duration cap_;
    Duration step_;
    std::mt19937_64 random_;
};

} // namespace stacksaga::coordinator
