// The control tables as plain values, and all queries of the roles as one interface: the daemon
// implements it with libpq (pg_control_store.hpp), the tests with a model of the control tables.
#pragma once

#include "base/config.hpp"
#include "base/time.hpp"
#include "core/ring/members.hpp"
#include "core/ring/ring_settings.hpp"

#include <asio/awaitable.hpp>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

using core::AssignmentRule;
using core::Strategy;

/// The settings of a ring and its latest window, as of `database_time`.
struct RingState {
    Instant database_time;
    Duration window_length; ///< > 0
    Duration publish_lead;  ///< >= 0; how long before its start a window is published
    Strategy strategy = Strategy::consistent;
    std::int32_t slots = 0; ///< > 0
    std::int64_t epoch = 0;
    std::optional<Instant> last_window; ///< start of the latest published window
    std::int32_t virtual_nodes = core::virtual_nodes_default;

    [[nodiscard]] AssignmentRule rule() const { return {strategy, virtual_nodes}; }
};

using core::NodeKind;
/// `unknown` is a word that this version does not know: such a node gets no slots.
enum class NodeState { active, suspected, dead, draining, unknown };

struct Node {
    std::string name;
    NodeKind kind = NodeKind::unknown;
    NodeState state = NodeState::unknown;
    double weight = 1;
    std::optional<std::string> agent = std::nullopt; ///< it assigns slots to this worker
    bool frozen = false; ///< an unresponsive agent that keeps its slots for now (rebalance_delay)
};

/// One slot: an inclusive range of tokens, its present owner, and the node that a published window
/// gives it to and that has not taken it over.
struct Slot {
    std::int32_t number = 0;
    std::int64_t range_start = 0;
    std::int64_t range_end = 0;
    std::optional<std::string> owner;
    std::optional<std::string> next_owner = std::nullopt;
};

/// An inclusive range of tokens for a node.
struct Grant {
    std::string node;
    std::int64_t range_start = 0;
    std::int64_t range_end = 0;

    auto operator<=>(const Grant &) const = default;
};

/// A window that is sent to the database: grants in ascending order that tile the ring, or the
/// slots of an agent.
struct Proposal {
    Instant window_start;
    std::vector<Grant> grants;
    std::size_t nodes = 0; ///< members that slots were assigned to
    std::size_t moved = 0; ///< slots whose owner changes
    std::string agent{};   ///< the agent whose part of the window this is; empty: the whole ring
};

/// The server's description of itself when the connection was opened.
struct ServerInfo {
    std::string server_version;
    std::string extension_version;
    std::string database;
    std::string host; ///< host name, address or socket folder
    std::string port;
    std::string role;
};

/// Lifecycle: open() first and after every error of class reconnect or in_doubt; close() at any
/// time. Failures are thrown as StoreError. One call at a time, on the thread of the io_context.
class ControlStore {
public:
    ControlStore() = default;
    ControlStore(const ControlStore &) = delete;
    ControlStore &operator=(const ControlStore &) = delete;
    virtual ~ControlStore() = default;

    /// Connects, and checks that the extension is installed.
    virtual asio::awaitable<ServerInfo> open() = 0;

    /// Drops the connection, if there is one.
    virtual void close() noexcept = 0;

    /// Settings, time and the latest window of a ring; ring_missing when there is no such ring.
    virtual asio::awaitable<RingState> ring_state(const RingName &ring) = 0;

    /// All nodes of a ring, of every kind and state.
    virtual asio::awaitable<std::vector<Node>> nodes(const RingName &ring) = 0;

    /// All slots of a ring, ascending and without a gap, with their owners and next owners.
    virtual asio::awaitable<std::vector<Slot>> slots(const RingName &ring) = 0;

    /// Publishes a window, or the part of one that is assigned to proposal.agent. Returns the
    /// epoch, or nothing when that window was already published. After an error of class in_doubt
    /// the outcome is unknown: ring_state() has the answer.
    virtual asio::awaitable<std::optional<std::int64_t>>
    publish_window(const RingName &ring, const Proposal &proposal,
                   const std::string &publisher) = 0;
};

/// The identity of an agent in the database: its name, and the incarnation that it got when it
/// registered.
struct AgentIdentity {
    std::string name;
    std::int64_t incarnation = 0;
    std::int64_t windows = 0; ///< how many parts it has published: its progress
};

/// The answer to a heartbeat.
struct Beat {
    NodeState state = NodeState::unknown;
    Duration interval; ///< > 0; until the next one is due
};

/// The further queries of role agent. The database refuses an incarnation with SG412 when a newer
/// one of the name fences it, and with SG404 when it was removed.
class AgentStore : public ControlStore {
public:
    /// Registers a node of kind agent; gives its incarnation.
    virtual asio::awaitable<std::int64_t>
    register_agent(const RingName &ring, const std::string &name, double weight) = 0;

    virtual asio::awaitable<Beat> beat(const RingName &ring, const AgentIdentity &agent) = 0;

    /// Removes the agent from its ring; from then on a master assigns slots to its workers.
    virtual asio::awaitable<void> leave(const AgentIdentity &agent) = 0;

    /// The slots that the agent assigns to its workers in the window that starts then, ascending;
    /// the owner is the worker of the agent that owns the slot or will own it.
    virtual asio::awaitable<std::vector<Slot>> assigned_slots(const std::string &agent,
                                                              Instant window_start) = 0;
};

} // namespace stacksaga::coordinator
