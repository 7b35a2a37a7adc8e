// Role agent: deals what a master dealt it to its own workers.
#pragma once

#include "backoff.hpp"
#include "clock.hpp"
#include "control_store.hpp"
#include "errors.hpp"
#include "log.hpp"

#include <asio/awaitable.hpp>

#include <functional>
#include <optional>
#include <string>

namespace stacksaga::coordinator {

struct AgentSettings {
    RingName ring;
    std::string name; ///< as a node; stable, since workers are dealt to it by name
    double weight = 1;
    std::uint64_t seed = 0; ///< of the jitter
    /// Told in a line what it does, whenever that changes; may be empty.
    std::function<void(const std::string &)> on_status{};
};

/// A relay between a master and many workers of one ring. It registers as a node of kind agent,
/// beats, and publishes its part of each window as soon as the window of the whole ring is there.
/// Where no master publishes, it deals what it has anew when a window opens, so that its workers
/// may come and go meanwhile.
///
/// Lifecycle: made with what it works on, then run() once, then leave() if it was stopped. Nothing
/// is remembered that the control tables do not hold, except its incarnation and which windows it
/// has seen settled. While it drains it publishes nothing: its workers are the master's. Thread:
/// that of the io_context.
class Agent {
public:
    Agent(AgentStore &store, Clock &clock, Log &log, AgentSettings settings);

    /// Serves until the daemon is stopped (asio::system_error(operation_aborted)), until another
    /// holder takes the name (StoreError with SG412), or until an error that waiting cannot mend.
    asio::awaitable<void> run();

    /// Takes the agent out of the ring, over a connection of its own; a failure is only logged,
    /// since the ring finds a silent agent out by itself.
    asio::awaitable<void> leave();

    /// Logs the connection, the node and the latest part that it dealt on.
    void log_state() const;

private:
    asio::awaitable<void> connect();
    asio::awaitable<void> enroll();
    asio::awaitable<void> beat();
    asio::awaitable<void> turn();
    asio::awaitable<void> publish(const RingState &state, Instant window_start);
    SteadyTime put_off(const StoreError &error);
    void tell(const std::string &status) const;
    void tell_what_is_dealt() const;

    AgentStore &store_;
    Clock &clock_;
    Log &log_;
    AgentSettings settings_;
    Backoff reconnect_;
    Backoff put_off_;
    bool connected_ = false;
    bool draining_ = false;
    std::optional<AgentIdentity> identity_;
    SteadyTime next_beat_;
    SteadyTime next_turn_;
    std::optional<Instant> settled_; ///< the latest window whose part is published
    std::string dealt_ = "nothing";  ///< what this process dealt on last, for people
};

} // namespace stacksaga::coordinator
