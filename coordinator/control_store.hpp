// Everything that the coordinator asks of a database, as one interface: libpq stands behind it in
// the daemon (pg_control_store.hpp), a model of the control tables in tests.
#pragma once

#include "types.hpp"

#include <asio/awaitable.hpp>

#include <optional>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// Lifecycle: open() first and after every error of class reconnect or in_doubt; close() at any
/// time. Failures are thrown as StoreError. One call at a time, on the thread of the io_context.
class ControlStore {
public:
    ControlStore() = default;
    ControlStore(const ControlStore &) = delete;
    ControlStore &operator=(const ControlStore &) = delete;
    virtual ~ControlStore() = default;

    /// Connects, and checks that the extension is there.
    virtual asio::awaitable<ServerInfo> open() = 0;

    /// Drops the connection, if there is one.
    virtual void close() noexcept = 0;

    /// Settings, time and the latest window of a ring; ring_missing when there is no such ring.
    virtual asio::awaitable<RingState> ring_state(const RingName &ring) = 0;

    /// All nodes of a ring, whatever their kind and state.
    virtual asio::awaitable<std::vector<Node>> nodes(const RingName &ring) = 0;

    /// All slots of a ring, ascending and without a gap, with their present owners.
    virtual asio::awaitable<std::vector<Slot>> slots(const RingName &ring) = 0;

    /// Proposes a window, or the part of one that proposal.agent was dealt. The epoch, or nothing
    /// when that window was already published. An error of class in_doubt leaves open whether it
    /// was: ring_state() tells.
    virtual asio::awaitable<std::optional<std::int64_t>>
    publish_window(const RingName &ring, const Proposal &proposal,
                   const std::string &publisher) = 0;
};

/// Who an agent is to the database: its name, and the incarnation that registering gave it.
struct AgentIdentity {
    std::string name;
    std::int64_t incarnation = 0;
    std::int64_t windows = 0; ///< whose parts it has published: its progress
};

/// What a heartbeat was answered.
struct Beat {
    NodeState state = NodeState::unknown;
    Duration interval; ///< > 0; when the next one is due
};

/// What role agent asks besides. An incarnation that another holder of the name has fenced is
/// refused with SG412, one that was removed with SG404.
class AgentStore : public ControlStore {
public:
    /// Registers a node of kind agent; gives its incarnation.
    virtual asio::awaitable<std::int64_t>
    register_agent(const RingName &ring, const std::string &name, double weight) = 0;

    virtual asio::awaitable<Beat> beat(const RingName &ring, const AgentIdentity &agent) = 0;

    /// Takes the agent out of its ring; its workers are a master's from then on.
    virtual asio::awaitable<void> leave(const AgentIdentity &agent) = 0;

    /// What the agent deals on in the window that starts then, ascending; the owner is the worker
    /// of its own that owns the slot or is to.
    virtual asio::awaitable<std::vector<Slot>> dealt_slots(const std::string &agent,
                                                           Instant window_start) = 0;
};

} // namespace stacksaga::coordinator
