// The states of a node, as data. The state is not stored: it follows from the age of the node's
// heartbeat and from whether it drains, so that it needs nobody to change it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stacksaga::core {

enum class NodeState : std::uint8_t { active, suspected, dead, draining, removed };
inline constexpr std::array<std::string_view, 5> node_state_names{"active", "suspected", "dead",
                                                                  "draining", "removed"};

constexpr std::string_view name_of(NodeState state) {
    return node_state_names[static_cast<std::size_t>(state)];
}

/// One change of state that can happen to one incarnation of a node.
struct NodeTransition {
    NodeState from;
    NodeState to;
    std::string_view sentence;
};

inline constexpr std::array node_transitions{
    NodeTransition{
        NodeState::active, NodeState::suspected,
        "heartbeats are missing, or arrive without progress: it finishes its work and gets no new slots"},
    NodeTransition{
        NodeState::active, NodeState::draining,
        "drain_node() was called: it finishes, hands its slots over, and windows leave it out"},
    NodeTransition{NodeState::active, NodeState::removed, "it left the ring"},
    NodeTransition{NodeState::suspected, NodeState::active,
                   "heartbeats arrive again, with its progress where it has reported any before"},
    NodeTransition{NodeState::suspected, NodeState::draining, "drain_node() was called"},
    NodeTransition{NodeState::suspected, NodeState::dead,
                   "its last heartbeat is older than dead_after: its slots may be taken over"},
    NodeTransition{NodeState::suspected, NodeState::removed, "it left the ring"},
    NodeTransition{NodeState::draining, NodeState::dead,
                   "its last heartbeat is older than dead_after: its slots may be taken over"},
    NodeTransition{NodeState::draining, NodeState::removed, "it left the ring"},
    NodeTransition{
        NodeState::dead, NodeState::active,
        "heartbeats arrive again; the slots that were taken over stay with their new owners"},
    NodeTransition{NodeState::dead, NodeState::draining,
                   "heartbeats arrive again, and it still drains"},
    NodeTransition{NodeState::dead, NodeState::removed,
                   "it left the ring, or its last heartbeat is ten times dead_after old"},
};

/// Whether `from` can become `to`; a state always stays what it is.
constexpr bool may_change(NodeState from, NodeState to) {
    if (from == to)
        return true;
    for (const NodeTransition &t : node_transitions)
        if (t.from == from && t.to == to)
            return true;
    return false;
}

/// Ages of the last heartbeat at which a node is suspected, dead and removed; microseconds,
/// ascending.
struct NodeTiming {
    std::int64_t suspect_after;
    std::int64_t dead_after;

    constexpr std::int64_t removed_after() const {
        return dead_after > INT64_MAX / 10 ? INT64_MAX : 10 * dead_after;
    }
};

/// How far an instant is from now. A heartbeat in the future (the clock was set back) ages like one
/// in the past: the next heartbeat of a live node corrects it.
constexpr std::int64_t age_of(std::int64_t heartbeat_at, std::int64_t now) {
    const auto earlier = static_cast<std::uint64_t>(heartbeat_at < now ? heartbeat_at : now);
    const auto later = static_cast<std::uint64_t>(heartbeat_at < now ? now : heartbeat_at);
    constexpr auto most = static_cast<std::uint64_t>(INT64_MAX);
    return static_cast<std::int64_t>(later - earlier > most ? most : later - earlier);
}

/// For how long a node has hung that reported its progress `report_age` ago: since it was asked for
/// it again, `checkpoint_interval` after that.
constexpr std::int64_t hung_for(std::int64_t report_age, std::int64_t checkpoint_interval) {
    return report_age > checkpoint_interval ? report_age - checkpoint_interval : 0;
}

/// The state of a node whose last heartbeat arrived `heartbeat_age` ago. One that beats but has
/// hung (`hung`, see hung_for) is suspected like one that is unresponsive, and never dead: it may
/// finish the items that it has begun.
constexpr NodeState node_state(std::int64_t heartbeat_age, bool draining, const NodeTiming &timing,
                               std::int64_t hung = 0) {
    if (heartbeat_age >= timing.removed_after())
        return NodeState::removed;
    if (heartbeat_age >= timing.dead_after)
        return NodeState::dead;
    if (draining)
        return NodeState::draining;
    return heartbeat_age >= timing.suspect_after || hung >= timing.suspect_after
               ? NodeState::suspected
               : NodeState::active;
}

/// Whether the slots of an agent in this state, last heard `heartbeat_age` ago, still wait for it.
constexpr bool is_frozen(NodeState state, std::int64_t heartbeat_age, const NodeTiming &timing,
                         std::int64_t rebalance_delay) {
    return (state == NodeState::suspected || state == NodeState::dead) &&
           heartbeat_age < timing.suspect_after + rebalance_delay;
}

static_assert(!may_change(NodeState::active, NodeState::dead));
static_assert(!may_change(NodeState::draining, NodeState::active));
static_assert(!may_change(NodeState::removed, NodeState::active));
static_assert(age_of(INT64_MIN, INT64_MAX) == INT64_MAX && age_of(3, 1) == 2);

} // namespace stacksaga::core
