// Virtual time: a queue of events, and processes whose clocks drift and that pause and die.
//
// Everything that happens in a schedule is an event of one queue, drawn from one random generator,
// so that a seed is a schedule. Coroutines of the coordinator run on an io_context that is polled
// after an event woke one of them; nothing else runs on it.
#pragma once

#include "control_tables.hpp"

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/use_awaitable.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <vector>

namespace stacksaga::sim {

inline constexpr Time second = core::second_us;
inline constexpr Time millisecond = core::millisecond_us;

class World {
public:
    World(std::uint64_t seed, const core::RingSettings &settings, std::int32_t slots, Mutant mutant)
        : tables(settings, slots, mutant), random_(seed) {}
    World(const World &) = delete;
    World &operator=(const World &) = delete;

    // Behind the events, which may refer to it.
    asio::io_context io{1};
    ControlTables tables;
    std::exception_ptr failure; ///< of a coroutine; ends the schedule
    bool is_calm = false;       ///< nothing new goes wrong

    /// What processes sent to the database.
    struct Statements {
        std::uint64_t beats = 0;  ///< of workers
        std::uint64_t reads = 0;  ///< of daemons
        std::uint64_t writes = 0; ///< of daemons, heartbeats of agents included
    } statements;

    /// True time, from 0.
    [[nodiscard]] Time now() const { return now_; }

    /// The database clock jumps against true time.
    void jump(Time by) { jumped_ += by; }
    [[nodiscard]] Time database_time() const { return database_start + now_ + jumped_; }

    /// The tables as of now: what a statement that runs at this instant sees and changes.
    ControlTables &database() {
        tables.now = database_time();
        return tables;
    }

    void at(Time when, std::function<void()> happen) {
        events_.push({std::max(when, now_), ++last_event_, std::move(happen)});
    }

    void run_until(Time end) {
        while (!events_.empty() && events_.top().when <= end) {
            // The top of a queue is const for the sake of its order, which is over here.
            const auto event = std::move(const_cast<Event &>(events_.top()));
            events_.pop();
            now_ = event.when;
            event.happen();
            poll();
        }
        now_ = end;
    }

    /// Lets coroutines run as far as they get now.
    void poll() {
        if (!woken_)
            return;
        woken_ = false;
        io.restart();
        io.poll();
        if (failure)
            std::rethrow_exception(failure);
    }
    void wake() { woken_ = true; }

    /// Suspends a coroutine of `io`. No timer of Asio is involved: its reactor would ask the kernel
    /// with every event.
    asio::awaitable<void> suspend_until(Time when) {
        return asio::async_initiate<const asio::use_awaitable_t<>, void()>(
            [this](auto handler, Time until) {
                // Shared, because what an event calls has to be copyable.
                auto waiting = std::make_shared<decltype(handler)>(std::move(handler));
                at(until, [this, waiting] {
                    asio::post(io, std::move(*waiting));
                    wake();
                });
            },
            asio::use_awaitable, when);
    }

    // -------------------------------------------------------------------------- chance
    [[nodiscard]] std::int64_t between(std::int64_t least, std::int64_t most) {
        return least +
               static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most - least + 1));
    }
    [[nodiscard]] bool happens(int in_a_thousand) { return between(1, 1000) <= in_a_thousand; }
    template <class T> const T &one_of(const std::vector<T> &list) {
        return list[static_cast<std::size_t>(between(0, static_cast<int>(list.size()) - 1))];
    }

private:
    struct Event {
        Time when;
        std::uint64_t number;
        std::function<void()> happen;
        bool operator<(const Event &other) const {
            return when != other.when ? when > other.when : number > other.number;
        }
    };

    static constexpr Time database_start = 800'000'000 * second; // in 2025

    std::priority_queue<Event> events_;
    std::uint64_t last_event_ = 0;
    std::mt19937_64 random_;
    Time now_ = 0;
    Time jumped_ = 0;
    bool woken_ = false;
};

/// What the simulator does to a process.
struct Process {
    Time paused_until = 0;
    Time lossy_until = 0; ///< most of its messages are lost or delayed
    bool killed = false;
    bool stopped = false; ///< asked to end by itself
    double rate = 1;      ///< of its clock; 1.05 runs fast

    [[nodiscard]] bool is_paused(Time now) const { return now < paused_until; }
    /// True time that passes while its own clock moves by `own`.
    [[nodiscard]] Time truly(Time own) const {
        return static_cast<Time>(std::ceil(static_cast<double>(own) / rate));
    }
};

/// The longest delay of a message.
inline constexpr Time latest_message = 20 * second;

/// The times of a message to the database.
struct Passage {
    Time there; ///< until the statement runs
    Time back;  ///< from then until the answer is here
    bool lost_before;
    bool lost_after;
};

inline Passage passage_of(World &world, const Process &process) {
    const bool lossy = world.now() < process.lossy_until;
    const int of_a_thousand = world.is_calm ? 0 : lossy ? 300 : 5;
    const bool is_delayed = world.happens(of_a_thousand);
    return {world.between(100, 3 * millisecond) +
                (is_delayed ? world.between(0, latest_message) : 0),
            world.between(100, 3 * millisecond), world.happens(of_a_thousand),
            world.happens(of_a_thousand)};
}

} // namespace stacksaga::sim
