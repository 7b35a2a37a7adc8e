#include "moves.hpp"

#include "control_tables.hpp"

#include <algorithm>
#include <string>

namespace stacksaga::sim {
namespace {

using coordinator::Node;

const Node *find(std::span<const Node> nodes, const std::string &name) {
    const auto found = std::ranges::find(nodes, name, &Node::name);
    return found == nodes.end() ? nullptr : &*found;
}

/// A node in a window's view: in a window of the whole ring its agent stands for it, if that takes
/// slots or is frozen.
const Node *holder(const std::optional<std::string> &name, const std::string &assigner,
                   std::span<const Node> nodes) {
    const Node *node = name ? find(nodes, *name) : nullptr;
    if (node == nullptr || !node->agent || !assigner.empty())
        return node;
    const Node *agent = find(nodes, *node->agent);
    return agent != nullptr && (agent->frozen || coordinator::takes_slots(*agent)) ? agent : node;
}

/// The holder of a slot in a window's view: the node that an earlier window gives it to, if that
/// takes slots or is frozen, else its owner.
const Node *holder_of(const coordinator::Slot &slot, const std::string &assigner,
                      std::span<const Node> nodes, std::span<const coordinator::Member> members) {
    const Node *next = holder(slot.next_owner, assigner, nodes);
    if (next != nullptr &&
        (next->frozen || std::ranges::count(members, next->name, &coordinator::Member::name) > 0))
        return next;
    return holder(slot.owner, assigner, nodes);
}

} // namespace

void check_moves(const coordinator::Proposal &proposal, coordinator::Strategy strategy,
                 std::span<const Node> nodes, std::span<const coordinator::Slot> slots) {
    const auto members = proposal.agent.empty()
                             ? coordinator::members_of(nodes, strategy)
                             : coordinator::members_of_agent(nodes, proposal.agent);
    std::vector<std::int32_t> held(members.size());
    std::int32_t assigned = 0, moved = 0;
    for (const coordinator::Slot &slot : slots) {
        const Node *holder = holder_of(slot, proposal.agent, nodes, members);
        const auto grant = std::ranges::find_if(proposal.grants, [&](const auto &granted) {
            return slot.range_start <= granted.range_end;
        });
        const bool stays =
            holder != nullptr && grant != proposal.grants.end() && grant->node == holder->name;
        if (holder != nullptr && holder->frozen) {
            if (!stays)
                throw Violation("a slot of a frozen agent moves: " + std::to_string(slot.number));
            continue;
        }
        ++assigned;
        moved += stays ? 0 : 1;
        for (std::size_t i = 0; i < members.size(); ++i)
            held[i] += holder != nullptr && members[i].name == holder->name ? 1 : 0;
    }
    if (strategy != coordinator::Strategy::consistent || members.empty())
        return;
    const auto quotas = coordinator::quotas(members, held, assigned);
    std::int32_t kept = 0;
    for (std::size_t i = 0; i < members.size(); ++i)
        kept += std::min(held[i], quotas[i]);
    if (moved > assigned - kept)
        throw Violation("a window moves more than balance needs: " + std::to_string(moved) +
                        " slots instead of " + std::to_string(assigned - kept));
}

} // namespace stacksaga::sim
