// Hand-over: which node gets each slot of a node that leaves or drains.
//
// The same assignment as that of a window, over the nodes that remain: within its agent's slots by
// the agent's, else by the master's and then, for a slot that falls to an agent, by that agent's.
// Only slots of the leaver change hands; the next window balances the rest.
#pragma once

#include "core/ring/members.hpp"

namespace stacksaga::core {

/// Whether a node keeps the slots that it owns while another leaves: a worker that takes slots.
constexpr bool keeps_slots(std::span<const RingNode> nodes, std::int32_t leaver,
                           std::int32_t node) {
    return node != nobody && node != leaver &&
           nodes[static_cast<std::size_t>(node)].kind == NodeKind::worker &&
           takes_slots(nodes[static_cast<std::size_t>(node)]);
}

/// The node that counts as the owner of a slot that `owner` owns and that is proposed to `next`: a
/// slot that a window gives to another node is that node's already.
constexpr std::int32_t planned_owner(std::span<const RingNode> nodes, std::int32_t leaver,
                                     std::int32_t owner, std::int32_t next) {
    if (keeps_slots(nodes, leaver, next))
        return next;
    if (keeps_slots(nodes, leaver, owner))
        return owner;
    return owner == leaver || next == leaver ? leaver : nobody;
}

class HandOver {
public:
    /// `nodes` are sorted by name; `owners[slot]` is the slot's planned_owner(). The
    /// leaver must not take slots any more. Takes scratch_bytes() of `scratch`.
    HandOver(std::span<const RingNode> nodes, AssignmentRule rule, std::int32_t leaver,
             std::span<const std::int32_t> owners, Scratch scratch)
        : nodes_(nodes), rule_(rule), leaver_(leaver), owners_(owners), scratch_(scratch),
          agents_(nodes, scratch_), part_(scratch_.take<std::int32_t>(owners.size())),
          next_(scratch_.take<std::int32_t>(owners.size())) {}

    static constexpr std::size_t scratch_bytes(std::size_t nodes, std::size_t slots,
                                               AssignmentRule rule) {
        return Scratch::bytes_of<Agents::Standing>(nodes) +
               2 * Scratch::bytes_of<std::int32_t>(slots) + 2 * Members::scratch_bytes(nodes) +
               assign_scratch_bytes(nodes, slots, rule);
    }

    /// Writes into `successors` the node that gets each slot of the leaver; nobody where there is
    /// none, and for slots of others.
    void choose(std::span<std::int32_t> successors) {
        std::fill(successors.begin(), successors.end(), nobody);
        const RingNode &leaver = at(leaver_);
        if (!leaver.agent.empty() && assign_part(leaver.agent, successors))
            return;
        if (const Agents::Standing *agent = agents_.of(leaver); agent != nullptr && agent->frozen)
            return; // its slots wait for the agent
        assign_ring(successors);
    }

    /// As choose(), but a slot of others has its planned owner for a successor.
    void choose_for_all(std::span<std::int32_t> successors) {
        choose(successors);
        for (std::size_t slot = 0; slot < owners_.size(); ++slot)
            if (successors[slot] == nobody && owners_[slot] != leaver_)
                successors[slot] = owners_[slot];
    }

private:
    const RingNode &at(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }
    bool is_leavers(std::size_t slot) const { return owners_[slot] == leaver_; }

    /// The node of whom a master thinks that it holds what this one owns.
    std::int32_t holder(std::int32_t owner) const {
        const Agents::Standing *agent = agents_.of(at(owner));
        return agent == nullptr ? owner : index_of(agent->name);
    }

    std::int32_t index_of(std::string_view name) const {
        const auto found = std::lower_bound(
            nodes_.begin(), nodes_.end(), name,
            [](const RingNode &node, std::string_view wanted) { return node.name < wanted; });
        return static_cast<std::int32_t>(found - nodes_.begin());
    }

    /// Assigns the first `count` slots of part_, whose owners next_ says as members.
    void assign_slots(const Members &members, std::size_t count) {
        assign(members.members, next_.first(count), rule_, scratch_);
    }

    /// By the agent's rule: the leaver's slots, or those that `successors` gives to the agent.
    /// False when the agent has no worker that takes slots.
    bool assign_part(std::string_view agent, std::span<std::int32_t> successors) {
        const Scratch before = scratch_;
        const Members members = members_of_agent(nodes_, agent, scratch_);
        const bool is_possible = !members.members.empty();
        if (is_possible) {
            std::size_t count = 0;
            for (std::size_t slot = 0; slot < owners_.size(); ++slot) {
                const std::int32_t given = successors[slot];
                const bool is_given = given != nobody && at(given).name == agent;
                const bool is_agents =
                    owners_[slot] != nobody && is_worker_of(at(owners_[slot]), agent);
                if (!is_given && !is_agents)
                    continue;
                part_[count] = static_cast<std::int32_t>(slot);
                next_[count++] = is_agents ? members.index_of(owners_[slot]) : nobody;
            }
            assign_slots(members, count);
            for (std::size_t i = 0; i < count; ++i) {
                const auto slot = static_cast<std::size_t>(part_[i]);
                if (is_leavers(slot))
                    successors[slot] = members.nodes[static_cast<std::size_t>(next_[i])];
            }
        }
        scratch_ = before;
        return is_possible;
    }

    /// By the master's rule, and then by the rule of each agent that gets something.
    void assign_ring(std::span<std::int32_t> successors) {
        const Members members = members_of(nodes_, agents_, rule_.strategy, scratch_);
        if (members.members.empty())
            return;
        std::size_t count = 0;
        for (std::size_t slot = 0; slot < owners_.size(); ++slot) {
            const std::int32_t owner = owners_[slot];
            const std::int32_t held_by = owner == nobody ? nobody : holder(owner);
            if (held_by != nobody && at(held_by).frozen)
                continue;
            part_[count] = static_cast<std::int32_t>(slot);
            next_[count++] = held_by == nobody ? nobody : members.index_of(held_by);
        }
        assign_slots(members, count);
        for (std::size_t i = 0; i < count; ++i) {
            const auto slot = static_cast<std::size_t>(part_[i]);
            if (is_leavers(slot))
                successors[slot] = members.nodes[static_cast<std::size_t>(next_[i])];
        }
        for (const std::int32_t member : members.nodes)
            if (at(member).kind == NodeKind::agent)
                assign_part(at(member).name, successors);
    }

    std::span<const RingNode> nodes_;
    AssignmentRule rule_;
    std::int32_t leaver_;
    std::span<const std::int32_t> owners_;
    Scratch scratch_;
    Agents agents_;
    std::span<std::int32_t> part_; ///< slots that are assigned together
    std::span<std::int32_t> next_; ///< their owners, as members
};

} // namespace stacksaga::core
