// Hand-over: a node that leaves or drains gives its slots to successors.
#include "core/ring/hand_over.hpp"

#include "control_tables.hpp"

#include <algorithm>
#include <cstddef>

namespace stacksaga::sim {
namespace {

/// The nodes in the core's types, sorted by name.
struct View {
    std::vector<core::RingNode> nodes;
    std::vector<Incarnation> incarnations;
    std::int32_t leaver = core::nobody;

    [[nodiscard]] std::int32_t index_of(Incarnation incarnation) const {
        const auto found = std::ranges::find(incarnations, incarnation);
        return incarnation == nobody || found == incarnations.end()
                   ? core::nobody
                   : static_cast<std::int32_t>(found - incarnations.begin());
    }
};

std::vector<std::int32_t> choose_successors(const View &view, core::Strategy strategy,
                                            std::span<const SlotRow> slots) {
    std::vector<std::int32_t> owners;
    for (const SlotRow &slot : slots)
        owners.push_back(core::planned_owner(view.nodes, view.leaver, view.index_of(slot.owner),
                                             view.index_of(slot.next_owner)));
    std::vector<std::byte> memory(
        core::HandOver::scratch_bytes(view.nodes.size(), owners.size(), strategy));
    std::vector<std::int32_t> successors(owners.size());
    core::HandOver(view.nodes, strategy, view.leaver, owners, core::Scratch(memory.data()))
        .choose_for_all(successors);
    return successors;
}

} // namespace

void ControlTables::hand_over(const NodeRow &leaver) {
    if (mutant_ == Mutant::leaves_behind)
        return;
    View view;
    for (const auto &[name, node] : nodes_) {
        const bool leaves = node.incarnation == leaver.incarnation;
        if (leaves)
            view.leaver = static_cast<std::int32_t>(view.nodes.size());
        view.nodes.push_back(
            {.name = name,
             .kind = node.is_agent ? core::NodeKind::agent : core::NodeKind::worker,
             .state = leaves ? core::NodeState::draining : state_of(node),
             .weight = node.weight,
             .agent = node.agent,
             .frozen = is_frozen(node) && !leaves});
        view.incarnations.push_back(node.incarnation);
    }
    const auto successors = choose_successors(view, settings_.strategy, slots_);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        const Incarnation successor =
            successors[i] == core::nobody
                ? nobody
                : view.incarnations[static_cast<std::size_t>(successors[i])];
        give(leaver.incarnation, static_cast<std::int32_t>(i), successor,
             core::keeps_slots(view.nodes, view.leaver, view.index_of(slots_[i].owner)));
    }
}

/// Gives away one slot that the leaver owns or that was proposed to it.
void ControlTables::give(Incarnation leaver, std::int32_t number, Incarnation successor,
                         bool is_kept) {
    SlotRow &slot = slots_[static_cast<std::size_t>(number)];
    const bool is_idle = slot.sharers.empty() || mutant_ == Mutant::leaver_never_locks;
    if (slot.owner == leaver && successor != nobody && is_idle) {
        ++proposed_moves;
        take(successor, {number, slot.epoch, false, now});
    } else if (core::propose_successor(slot, leaver, successor, is_kept, now)) {
        ++proposed_moves;
    }
}

/// Checks that a node that has given its slots away keeps no idle slot while there is a successor.
void ControlTables::check_given_away(const NodeRow &leaver) const {
    const auto is_waited_for = [&](const NodeRow &worker) {
        const NodeRow *agent = worker.agent.empty() ? nullptr : find(worker.agent);
        return agent != nullptr && is_frozen(*agent);
    };
    const bool has_successor =
        !is_waited_for(leaver) && std::ranges::any_of(nodes_, [&](const auto &entry) {
            const NodeRow &node = entry.second;
            return !node.is_agent && node.incarnation != leaver.incarnation &&
                   state_of(node) == core::NodeState::active && !is_waited_for(node);
        });
    for (std::size_t i = 0; has_successor && i < slots_.size(); ++i)
        if (slots_[i].owner == leaver.incarnation && slots_[i].sharers.empty())
            throw Violation("a node that leaves or drains keeps a slot: " + leaver.name +
                            ", slot " + std::to_string(i));
}

} // namespace stacksaga::sim
