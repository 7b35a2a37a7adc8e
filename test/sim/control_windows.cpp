// Publication of windows, and of agents' parts of them.
#include "control_tables.hpp"

namespace stacksaga::sim {

bool ControlTables::is_frozen(const NodeRow &node) const {
    const core::NodeState state = state_of(node);
    const Time patience = settings_.suspect_after + settings_.rebalance_delay;
    return node.is_agent &&
           (state == core::NodeState::suspected || state == core::NodeState::dead) &&
           (core::silence(node.heartbeat_at, now) < patience || mutant_ == Mutant::frozen_for_ever);
}

/// A slot of a worker counts as its agent's, because the agent assigns it.
bool ControlTables::is_at(Incarnation holder, const NodeRow &node) const {
    const NodeRow *row = find(holder);
    return row != nullptr && (row->incarnation == node.incarnation || row->agent == node.name);
}

bool ControlTables::was_assigned(const SlotRow &slot, const NodeRow &agent,
                                 Time window_start) const {
    if (slot.next_owner == nobody)
        return is_at(slot.owner, agent);
    return is_at(slot.next_owner, agent) && slot.next_from <= window_start;
}

bool ControlTables::is_assigned(const SlotRow &slot, const NodeRow &agent,
                                Time window_start) const {
    return mutant_ == Mutant::assigns_all || was_assigned(slot, agent, window_start);
}

const NodeRow *ControlTables::worker_of(const SlotRow &slot, const NodeRow &agent) const {
    for (const Incarnation holder : {slot.owner, slot.next_owner}) {
        const NodeRow *node = find(holder);
        if (node != nullptr && node->agent == agent.name)
            return node;
    }
    return nullptr;
}

void ControlTables::check_window(Time window_start) const {
    if (!core::window::is_aligned(window_start, settings_.window_length) ||
        window_start + settings_.window_length <= now)
        throw Refusal("SG400");
}

/// The node of each range; refuses one that the ring, or the agent, does not have.
std::vector<const NodeRow *> ControlTables::grantees(std::span<const Grant> grants,
                                                     const std::string &agent) const {
    std::vector<const NodeRow *> nodes;
    for (const Grant &grant : grants) {
        nodes.push_back(find(grant.node));
        if (nodes.back() == nullptr)
            throw Refusal("SG404");
        if (!agent.empty() && nodes.back()->agent != agent)
            throw Refusal("SG400");
    }
    return nodes;
}

/// The range that holds each slot: of all slots, or of the agent's.
std::vector<std::int32_t> ControlTables::cut(std::span<const Grant> grants, const NodeRow *assigner,
                                             Time window_start) const {
    std::vector<core::Range> ranges;
    for (const Grant &grant : grants)
        ranges.push_back(grant.range);
    std::vector<std::int32_t> table(slots_.size(), core::slot_is_free);
    for (std::size_t i = 0; assigner != nullptr && i < slots_.size(); ++i) {
        if (!is_assigned(slots_[i], *assigner, window_start))
            table[i] = core::slot_not_ours;
    }
    const core::TilingFault fault = core::cut_at_slots(ranges, table);
    if (fault.rule != core::TilingRule::ok && assigner != nullptr)
        throw Refusal("SG416"); // the agent's slots have changed since it read them
    if (fault.rule != core::TilingRule::ok)
        throw Violation("a coordinator's window does not tile the ring: " +
                        std::string(core::describe(fault.rule)));
    for (std::size_t i = 0; assigner != nullptr && i < slots_.size(); ++i) {
        if (table[i] >= 0 && !was_assigned(slots_[i], *assigner, window_start))
            throw Violation("an agent assigns a slot that it does not have: " + assigner->name +
                            ", slot " + std::to_string(i));
    }
    return table;
}

/// Whether the agent has already assigned the slot to one of its workers, which then takes it over.
bool ControlTables::is_assigned_to_worker(const SlotRow &slot, const NodeRow &agent) const {
    const NodeRow *next = find(slot.next_owner);
    return next != nullptr && next->agent == agent.name;
}

void ControlTables::propose(SlotRow &slot, const NodeRow &node, Time window_start) {
    if (is_at(slot.owner, node)) {
        if (!is_assigned_to_worker(slot, node) || mutant_ == Mutant::parts_undone)
            slot.next_owner = nobody;
        return;
    }
    if (is_at(slot.next_owner, node) && slot.next_from <= window_start &&
        mutant_ != Mutant::postponed)
        return;
    slot.next_owner = node.incarnation;
    slot.next_from = window_start;
    proposed_moves += node.is_agent ? 0 : 1;
}

std::optional<std::int64_t> ControlTables::publish(Time window_start, std::span<const Grant> grants,
                                                   const std::string &publisher,
                                                   const std::string &agent) {
    check_window(window_start);
    const NodeRow *assigner = agent.empty() ? nullptr : find(agent);
    if (!agent.empty() && (assigner == nullptr || !assigner->is_agent))
        throw Refusal("SG400");
    const std::vector<std::int32_t> table = cut(grants, assigner, window_start);
    const std::vector<const NodeRow *> nodes = grantees(grants, agent);
    WindowRow &window =
        assigner == nullptr ? windows_[window_start] : parts_[{window_start, agent}];
    if (window.publications > 0 && mutant_ != Mutant::last_wins) {
        ++counts.lost_races;
        return std::nullopt;
    }
    window = {++epoch_, publisher, window.publications + 1};
    if (window.publications > 1)
        throw Violation("a window is published twice: the second time by " + publisher);
    ++(assigner == nullptr ? counts.windows : counts.parts);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (table[i] < 0 || (assigner != nullptr && mutant_ == Mutant::assigns_nothing))
            continue;
        const NodeRow &node = *nodes[static_cast<std::size_t>(table[i])];
        if (node.is_agent || !node.draining)
            propose(slots_[i], node, window_start);
    }
    remove_dead();
    return epoch_;
}

bool ControlTables::is_window_open() const {
    return windows_.contains(core::window::align(now, settings_.window_length));
}

std::optional<Time> ControlTables::last_window() const {
    if (windows_.empty())
        return std::nullopt;
    return windows_.rbegin()->first;
}

} // namespace stacksaga::sim
