#include "roles/proposal.hpp"

#include "core/common/scratch.hpp"
#include "core/ring/members.hpp"

#include <algorithm>
#include <cstddef>

namespace stacksaga::coordinator {
namespace {

std::vector<core::Member> views_of(std::span<const Member> members) {
    std::vector<core::Member> views;
    views.reserve(members.size());
    for (const Member &member : members)
        views.push_back({member.name, member.weight});
    return views;
}

} // namespace

std::vector<std::int32_t> quotas(std::span<const Member> members,
                                 std::span<const std::int32_t> held, std::int32_t slots) {
    std::vector<std::byte> memory(core::quotas_scratch_bytes(members.size()));
    core::Scratch scratch(memory.data());
    std::vector<std::int32_t> result(members.size());
    core::quotas(views_of(members), held, slots, scratch, result);
    return result;
}

std::vector<std::int32_t> assign(std::span<const Member> members,
                                 std::span<const std::int32_t> owners, AssignmentRule rule) {
    std::vector<std::byte> memory(core::assign_scratch_bytes(members.size(), owners.size(), rule));
    std::vector<std::int32_t> next(owners.begin(), owners.end());
    core::assign(views_of(members), next, rule, core::Scratch(memory.data()));
    return next;
}

namespace {

core::NodeState state_of(NodeState state) {
    switch (state) {
    case NodeState::active:
        return core::NodeState::active;
    case NodeState::suspected:
        return core::NodeState::suspected;
    case NodeState::dead:
        return core::NodeState::dead;
    case NodeState::draining:
        return core::NodeState::draining;
    case NodeState::unknown:
        break;
    }
    return core::NodeState::removed;
}

core::RingNode view_of(const Node &node) {
    return {.name = node.name,
            .kind = node.kind,
            .state = state_of(node.state),
            .weight = node.weight,
            .agent = node.agent ? std::string_view(*node.agent) : std::string_view(),
            .frozen = node.frozen};
}

/// The nodes of a ring in the core's types, sorted by name, and the memory for the core's
/// computations.
class RingNodes {
public:
    explicit RingNodes(std::span<const Node> nodes)
        : memory_(core::Scratch::bytes_of<core::Agents::Standing>(nodes.size()) +
                  core::Members::scratch_bytes(nodes.size())),
          scratch_(memory_.data()), nodes_(sorted(nodes)), agents_(nodes_, scratch_) {}

    [[nodiscard]] bool is_frozen(std::string_view agent) const {
        const auto *found = agents_.named(agent);
        return found != nullptr && found->frozen;
    }

    /// The node that owns this node's slots in a master's view: its agent, or the node itself.
    [[nodiscard]] std::string_view holder(std::string_view name) const {
        const auto node = std::ranges::lower_bound(nodes_, name, {}, &core::RingNode::name);
        const auto *agent =
            node != nodes_.end() && node->name == name ? agents_.of(*node) : nullptr;
        return agent == nullptr ? name : agent->name;
    }

    [[nodiscard]] std::vector<Member> members(Strategy strategy) const {
        core::Scratch scratch = scratch_;
        return owned(core::members_of(nodes_, agents_, strategy, scratch));
    }

    [[nodiscard]] std::vector<Member> members_of(std::string_view agent) const {
        core::Scratch scratch = scratch_;
        return owned(core::members_of_agent(nodes_, agent, scratch));
    }

private:
    static std::vector<core::RingNode> sorted(std::span<const Node> nodes) {
        std::vector<core::RingNode> views;
        views.reserve(nodes.size());
        for (const Node &node : nodes)
            views.push_back(view_of(node));
        std::ranges::sort(views, {}, &core::RingNode::name);
        return views;
    }

    static std::vector<Member> owned(const core::Members &members) {
        std::vector<Member> result;
        result.reserve(members.members.size());
        for (const core::Member &member : members.members)
            result.push_back({std::string(member.name), member.weight});
        return result;
    }

    std::vector<std::byte> memory_;
    core::Scratch scratch_;
    std::vector<core::RingNode> nodes_;
    core::Agents agents_;
};

/// Index of the member of that name, or nobody.
std::int32_t index_of(std::span<const Member> members, std::string_view name) {
    const auto found = std::ranges::lower_bound(members, name, {}, &Member::name);
    return found != members.end() && found->name == name
               ? static_cast<std::int32_t>(found - members.begin())
               : nobody;
}

/// The node whose slot this is in a master's view: the one that an earlier window gives it to, if
/// that takes slots or is frozen, else its owner. A window that is published before the slots of an
/// earlier one are taken over would otherwise be computed as if nobody had them, and give them to
/// other nodes: then the next one does the same, and they stay without an owner.
std::string_view holder_of(const Slot &slot, const RingNodes &ring,
                           std::span<const Member> members) {
    const std::string_view next = slot.next_owner ? ring.holder(*slot.next_owner) : "";
    if (ring.is_frozen(next) || index_of(members, next) != nobody)
        return next;
    return slot.owner ? ring.holder(*slot.owner) : "";
}

/// Adds a slot to the proposal; extends the last range if the slot continues it.
void grant(Proposal &proposal, const Slot &slot, std::string_view node, bool adjacent) {
    if (adjacent && proposal.grants.back().node == node)
        proposal.grants.back().range_end = slot.range_end;
    else
        proposal.grants.push_back({std::string(node), slot.range_start, slot.range_end});
}

} // namespace

bool takes_slots(const Node &node) noexcept {
    return core::takes_slots(view_of(node));
}

std::vector<Member> members_of(std::span<const Node> nodes, Strategy strategy) {
    return RingNodes(nodes).members(strategy);
}

std::vector<Member> members_of_agent(std::span<const Node> nodes, std::string_view agent) {
    return RingNodes(nodes).members_of(agent);
}

std::optional<Proposal> propose(Instant window_start, AssignmentRule rule,
                                std::span<const Node> nodes, std::span<const Slot> slots) {
    const RingNodes ring(nodes);
    const std::vector<Member> members = ring.members(rule.strategy);
    std::vector<std::string_view> frozen(slots.size()); // the agent; empty: to be assigned
    std::vector<std::int32_t> owners;
    for (std::size_t i = 0; i < slots.size(); ++i) {
        const std::string_view holder = holder_of(slots[i], ring, members);
        if (ring.is_frozen(holder))
            frozen[i] = holder;
        else
            owners.push_back(index_of(members, holder));
    }
    if (members.empty() && !owners.empty())
        return std::nullopt;

    std::vector<std::int32_t> next;
    if (!owners.empty())
        next = assign(members, owners, rule);
    Proposal proposal{window_start, {}, members.size(), 0};
    std::size_t assigned = 0;
    for (std::size_t i = 0; i < slots.size(); ++i) {
        if (!frozen[i].empty()) {
            grant(proposal, slots[i], frozen[i], i > 0);
            continue;
        }
        if (next[assigned] != owners[assigned])
            ++proposal.moved;
        grant(proposal, slots[i], members[static_cast<std::size_t>(next[assigned])].name, i > 0);
        ++assigned;
    }
    return proposal;
}

std::optional<Proposal> propose_part(Instant window_start, AssignmentRule rule,
                                     std::string_view agent, std::span<const Node> nodes,
                                     std::span<const Slot> slots) {
    const std::vector<Member> members = members_of_agent(nodes, agent);
    if (members.empty() || slots.empty())
        return std::nullopt;
    std::vector<std::int32_t> owners;
    for (const Slot &slot : slots)
        owners.push_back(slot.owner ? index_of(members, *slot.owner) : nobody);
    const std::vector<std::int32_t> next = assign(members, owners, rule);

    Proposal proposal{window_start, {}, members.size(), 0, std::string(agent)};
    for (std::size_t i = 0; i < slots.size(); ++i) {
        if (next[i] != owners[i])
            ++proposal.moved;
        grant(proposal, slots[i], members[static_cast<std::size_t>(next[i])].name,
              i > 0 && slots[i - 1].number + 1 == slots[i].number);
    }
    return proposal;
}

} // namespace stacksaga::coordinator
