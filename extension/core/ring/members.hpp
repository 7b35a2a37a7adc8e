// The members of an assignment: the workers that are well, or the agents that stand for them.
#pragma once

#include "core/common/scratch.hpp"
#include "core/ring/assignment.hpp"
#include "core/ring/node_state.hpp"
#include "core/ring/ring_settings.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace stacksaga::core {

/// `unknown` stands for a word of a later version: such a node gets nothing.
enum class NodeKind : std::uint8_t { worker, standard, agent, unknown };

/// A node as an assignment sees it.
struct RingNode {
    std::string_view name;
    NodeKind kind = NodeKind::unknown;
    NodeState state = NodeState::removed;
    double weight = 1;
    std::string_view agent{}; ///< the agent that assigns to this worker; empty: none
    bool frozen = false; ///< an unresponsive agent whose slots still wait for it (rebalance_delay)
};

/// Whether an assignment may give slots to a node: a worker or an agent, active, of positive
/// weight. Suspected nodes are left out as draining ones are: a node that beats without getting
/// anywhere stays suspected for ever, and what it holds must come free. What either has begun it
/// finishes.
constexpr bool takes_slots(const RingNode &node) {
    return (node.kind == NodeKind::worker || node.kind == NodeKind::agent) &&
           node.state == NodeState::active && node.weight > 0 &&
           node.weight <= std::numeric_limits<double>::max();
}

constexpr bool is_worker_of(const RingNode &node, std::string_view agent) {
    return node.kind == NodeKind::worker && node.agent == agent;
}

/// The agents of a ring that stand for their workers: those that take slots, and those that are
/// frozen. A worker whose agent drains or is lost is as one that has none.
class Agents {
public:
    struct Standing {
        std::string_view name;
        bool frozen = false;
        double weight_of_takers = 0; ///< of those that the agent can assign to
    };

    /// `nodes` are sorted by name. Takes Scratch::bytes_of<Standing>(nodes.size()).
    Agents(std::span<const RingNode> nodes, Scratch &scratch)
        : all_(scratch.take<Standing>(nodes.size())) {
        std::size_t count = 0;
        for (const RingNode &node : nodes)
            if (node.kind == NodeKind::agent && (node.frozen || takes_slots(node)))
                all_[count++] = {node.name, node.frozen, 0};
        all_ = all_.first(count);
        for (const RingNode &node : nodes)
            if (Standing *agent = find(node); agent != nullptr && takes_slots(node))
                agent->weight_of_takers += node.weight;
    }

    /// The agent that stands for a worker; nullptr: none does.
    const Standing *of(const RingNode &node) const { return find(node); }

    const Standing *named(std::string_view name) const { return find(name); }

private:
    Standing *find(std::string_view name) const {
        const auto found = std::lower_bound(
            all_.begin(), all_.end(), name,
            [](const Standing &agent, std::string_view wanted) { return agent.name < wanted; });
        return found != all_.end() && found->name == name ? &*found : nullptr;
    }
    Standing *find(const RingNode &node) const {
        return node.kind == NodeKind::worker && !node.agent.empty() ? find(node.agent) : nullptr;
    }

    std::span<Standing> all_; ///< sorted by name
};

/// An agent that a new worker may be assigned to.
struct AgentChoice {
    std::string_view name;
    NodeState state = NodeState::removed;
    std::int64_t workers = 0;
};

/// The agent of a worker that names none: its former one if that is active, else the active one
/// with the fewest workers, the first by name among equals; nobody if none is active.
constexpr std::int32_t choose_agent(std::span<const AgentChoice> agents, std::string_view former) {
    std::int32_t best = nobody;
    for (std::size_t i = 0; i < agents.size(); ++i) {
        const AgentChoice &agent = agents[i];
        if (agent.state != NodeState::active)
            continue;
        if (agent.name == former)
            return static_cast<std::int32_t>(i);
        if (best != nobody) {
            const AgentChoice &other = agents[static_cast<std::size_t>(best)];
            if (agent.workers > other.workers ||
                (agent.workers == other.workers && agent.name > other.name))
                continue;
        }
        best = static_cast<std::int32_t>(i);
    }
    return best;
}

/// Members and the nodes that they are.
struct Members {
    std::span<Member> members;
    std::span<std::int32_t> nodes; ///< ascending

    Members(std::size_t capacity, Scratch &scratch)
        : members(scratch.take<Member>(capacity)), nodes(scratch.take<std::int32_t>(capacity)) {}

    static constexpr std::size_t scratch_bytes(std::size_t capacity) {
        return Scratch::bytes_of<Member>(capacity) + Scratch::bytes_of<std::int32_t>(capacity);
    }

    /// The member that this node is, or nobody.
    std::int32_t index_of(std::int32_t node) const {
        const auto found = std::lower_bound(nodes.begin(), nodes.end(), node);
        return found != nodes.end() && *found == node
                   ? static_cast<std::int32_t>(found - nodes.begin())
                   : nobody;
    }
};

/// The weight of a node beside agents. The workers of an agent that does not stand for them share
/// its part.
inline double part_of_lost_agent(std::span<const RingNode> nodes, const RingNode &node) {
    if (node.kind != NodeKind::worker || node.agent.empty())
        return node.weight;
    double of_agent = 1, of_workers = 0;
    for (const RingNode &other : nodes) {
        if (other.kind == NodeKind::agent && other.name == node.agent && other.weight > 0)
            of_agent = other.weight;
        if (is_worker_of(other, node.agent) && takes_slots(other))
            of_workers += other.weight;
    }
    return of_agent * node.weight / of_workers;
}

/// The nodes that a master assigns to: the agents that take slots and have a worker that does, and
/// the workers that take slots and have no agent. While an agent is frozen its workers are nobody,
/// and keep what they own.
///
/// An agent's weight: under `contiguous` its own, so that agents get equal parts and split them
/// equally, as do the workers of one that is lost; under `consistent` that times the sum of its
/// workers' weights, so that each worker gets its share of the ring from any assigner, and next
/// to nothing moves when an agent comes or goes.
inline Members members_of(std::span<const RingNode> nodes, const Agents &agents, Strategy strategy,
                          Scratch &scratch) {
    Members result(nodes.size(), scratch);
    std::size_t count = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        const RingNode &node = nodes[i];
        if (!takes_slots(node) || agents.of(node) != nullptr)
            continue;
        double weight =
            strategy == Strategy::contiguous ? part_of_lost_agent(nodes, node) : node.weight;
        if (node.kind == NodeKind::agent) {
            const Agents::Standing *agent = agents.named(node.name);
            // At most a million workers of a weight of a million each: no sum or product overflows.
            const double takers = agent->frozen ? 0 : agent->weight_of_takers;
            if (takers <= 0)
                continue;
            weight *= strategy == Strategy::consistent ? takers : 1;
        }
        result.members[count] = {node.name, weight};
        result.nodes[count++] = static_cast<std::int32_t>(i);
    }
    result.members = result.members.first(count);
    result.nodes = result.nodes.first(count);
    return result;
}

/// The nodes that an agent assigns to: those of its own workers that take slots.
inline Members members_of_agent(std::span<const RingNode> nodes, std::string_view agent,
                                Scratch &scratch) {
    Members result(nodes.size(), scratch);
    std::size_t count = 0;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        if (!is_worker_of(nodes[i], agent) || !takes_slots(nodes[i]))
            continue;
        result.members[count] = {nodes[i].name, nodes[i].weight};
        result.nodes[count++] = static_cast<std::int32_t>(i);
    }
    result.members = result.members.first(count);
    result.nodes = result.nodes.first(count);
    return result;
}

} // namespace stacksaga::core
