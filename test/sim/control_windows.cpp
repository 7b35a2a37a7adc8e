// Publication of windows, and of agents' parts of them.
#include "control_tables.hpp"

namespace stacksaga::sim {

bool ControlTables::is_frozen(const NodeRow &node) const {
    const Time heartbeat_age =
        mutant_ == Mutant::frozen_for_ever ? 0 : core::age_of(node.heartbeat_at, now);
    return node.is_agent &&
           core::is_frozen(state_of(node), heartbeat_age, timing(), settings_.rebalance_delay);
}

core::Relation ControlTables::relation(Incarnation holder, const NodeRow &node) const {
    const NodeRow *row = find(holder);
    if (row == nullptr)
        return core::Relation::none;
    if (row->incarnation == node.incarnation)
        return core::Relation::itself;
    return row->agent == node.name ? core::Relation::its_worker : core::Relation::none;
}

bool ControlTables::was_assigned(const SlotRow &slot, const NodeRow &agent,
                                 Time window_start) const {
    return core::is_assigned_to_agent(slot, window_start, relation(slot.owner, agent),
                                      relation(slot.next_owner, agent));
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
    if (core::window::accept(window_start, settings_.window_length, now,
                             core::ring_interval_max_us) != core::window::Acceptance::accepted)
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

void ControlTables::propose(SlotRow &slot, const NodeRow &node, Time window_start) {
    const core::Relation owner = relation(slot.owner, node);
    const bool is_forgotten =
        mutant_ == (owner == core::Relation::none ? Mutant::postponed : Mutant::parts_undone);
    const core::Relation next =
        is_forgotten ? core::Relation::none : relation(slot.next_owner, node);
    if (core::propose(slot, node.incarnation, window_start, owner, next))
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
        if (core::may_be_proposed(!node.is_agent, node.draining))
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
