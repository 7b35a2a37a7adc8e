// Role agent: assigns the slots that a master gave it to its own workers.
#pragma once

#include "base/log.hpp"
#include "base/time.hpp"
#include "db/store_error.hpp"
#include "roles/control_store.hpp"

#include <asio/awaitable.hpp>

#include <functional>
#include <optional>
#include <string>

namespace stacksaga::coordinator {

struct AgentSettings {
    RingName ring;
    /// Of the node. It must stay the same, because workers belong to their agent by name.
    std::string name;
    double weight = 1;
    std::uint64_t seed = 0; ///< of the jitter
    /// Receives one line about the agent's assignment, whenever it changes; may be empty.
    std::function<void(const std::string &)> on_status{};
};

/// A relay between a master and many workers of one ring. It registers as a node of kind agent,
/// sends heartbeats, and publishes its part of each window as soon as a master has published the
/// window of the whole ring. When no master publishes, the agent reassigns its slots when a window
/// opens, so that its workers may still come and go.
///
/// Lifecycle: constructed, then run() once, then leave() if it was stopped. It keeps no state that
/// the control tables lack, except its incarnation and the latest settled window. While it drains,
/// it publishes nothing: a master assigns slots to its workers. Thread: that of the io_context.
class Agent {
public:
    Agent(AgentStore &store, Clock &clock, Log &log, AgentSettings settings);

    /// Serves until the daemon is stopped (asio::system_error(operation_aborted)), until another
    /// process takes the name (StoreError with SG412), or until an error that a retry cannot fix.
    asio::awaitable<void> run();

    /// Removes the agent from the ring over a new connection. It only logs a failure, because the
    /// ring detects an unresponsive agent by itself.
    asio::awaitable<void> leave();

    /// Logs the connection, the node and the latest part that it published.
    void log_state() const;

private:
    asio::awaitable<void> connect();
    asio::awaitable<void> enroll();
    asio::awaitable<void> beat();
    asio::awaitable<void> turn();
    asio::awaitable<void> publish(const RingState &state, Instant window_start);
    SteadyTime put_off(const StoreError &error);
    void notify_status(const std::string &status) const;
    void notify_assignment() const;

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
    std::optional<Instant> settled_;   ///< the latest window whose part is published
    std::string assigned_ = "nothing"; ///< the latest assignment of this process, for display
};

} // namespace stacksaga::coordinator
