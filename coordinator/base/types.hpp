// The coordinator's view of the control tables, as plain values.
//
// Units: instants and durations are whole microseconds, as PostgreSQL keeps them. An Instant is
// always a time of the *database* clock; the clock of this machine decides nothing, it only
// measures waiting (std::chrono::steady_clock) and dates log lines.
#pragma once

#include "core/members.hpp"
#include "core/ring_settings.hpp"

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

using Duration = std::chrono::microseconds;
using Instant = std::chrono::sys_time<Duration>;
using SteadyTime = std::chrono::steady_clock::time_point;

/// Names one virtual cluster.
struct RingName {
    std::string region;
    std::string cluster;

    auto operator<=>(const RingName &) const = default;
};

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

/// One slot: an inclusive range of tokens and its present owner.
struct Slot {
    std::int32_t number = 0;
    std::int64_t range_start = 0;
    std::int64_t range_end = 0;
    std::optional<std::string> owner;
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

} // namespace stacksaga::coordinator
