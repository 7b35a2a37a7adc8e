#include "proposal.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace stacksaga::coordinator {
namespace {

/// The agents of a ring that stand for their workers, by name.
class Agents {
public:
    explicit Agents(std::span<const Node> nodes) {
        for (const Node &node : nodes) {
            if (node.kind == NodeKind::agent && (node.frozen || takes_slots(node)))
                standing_.emplace(node.name, Standing{node.frozen, 0});
        }
        if (standing_.empty())
            return;
        for (const Node &node : nodes) {
            const auto agent = of(node);
            if (agent == standing_.end())
                continue;
            agents_.emplace(node.name, agent->first);
            if (takes_slots(node))
                agent->second.weight_of_takers += node.weight;
        }
    }

    /// Whether the worker is dealt to by an agent, or by nobody while its agent is frozen.
    [[nodiscard]] bool has(const Node &node) const { return agents_.contains(node.name); }

    [[nodiscard]] bool is_frozen(std::string_view agent) const {
        const auto found = standing_.find(agent);
        return found != standing_.end() && found->second.frozen;
    }

    /// The sum of the weights of those that the agent can deal to; 0: it deals nothing on.
    [[nodiscard]] double weight_of_takers(std::string_view agent) const {
        const auto found = standing_.find(agent);
        return found == standing_.end() || found->second.frozen ? 0
                                                                : found->second.weight_of_takers;
    }

    /// Whom a master thinks the owner of what this node owns.
    [[nodiscard]] std::string_view holder(std::string_view node) const {
        const auto found = agents_.find(node);
        return found == agents_.end() ? node : found->second;
    }

private:
    struct Standing {
        bool frozen;
        double weight_of_takers;
    };
    using Standings = std::unordered_map<std::string_view, Standing>;

    [[nodiscard]] Standings::iterator of(const Node &node) {
        return node.kind == NodeKind::worker && node.agent ? standing_.find(*node.agent)
                                                           : standing_.end();
    }

    Standings standing_;
    std::unordered_map<std::string_view, std::string_view> agents_; ///< of workers
};

std::vector<Member> members_of(std::span<const Node> nodes, const Agents &agents,
                               Strategy strategy) {
    std::vector<Member> members;
    for (const Node &node : nodes) {
        if (!takes_slots(node) || agents.has(node))
            continue;
        if (node.kind == NodeKind::worker) {
            members.push_back({node.name, node.weight});
            continue;
        }
        // At most a million workers of a weight of a million each: no sum or product overflows.
        const double takers = agents.weight_of_takers(node.name);
        if (takers > 0)
            members.push_back(
                {node.name, strategy == Strategy::consistent ? node.weight * takers : node.weight});
    }
    std::ranges::sort(members, {}, &Member::name);
    return members;
}

/// Index of the member of that name, or nobody.
std::int32_t index_of(std::span<const Member> members, std::string_view name) {
    const auto found = std::ranges::lower_bound(members, name, {}, &Member::name);
    return found != members.end() && found->name == name
               ? static_cast<std::int32_t>(found - members.begin())
               : nobody;
}

/// Adds a slot to the proposal, to the last range where that goes on.
void grant(Proposal &proposal, const Slot &slot, std::string_view node, bool adjacent) {
    if (adjacent && proposal.grants.back().node == node)
        proposal.grants.back().range_end = slot.range_end;
    else
        proposal.grants.push_back({std::string(node), slot.range_start, slot.range_end});
}

} // namespace

bool takes_slots(const Node &node) noexcept {
    return (node.kind == NodeKind::worker || node.kind == NodeKind::agent) &&
           node.state == NodeState::active && std::isfinite(node.weight) && node.weight > 0;
}

std::vector<Member> members_of(std::span<const Node> nodes, Strategy strategy) {
    return members_of(nodes, Agents(nodes), strategy);
}

std::vector<Member> members_of_agent(std::span<const Node> nodes, std::string_view agent) {
    std::vector<Member> members;
    for (const Node &node : nodes) {
        if (node.kind == NodeKind::worker && node.agent == agent && takes_slots(node))
            members.push_back({node.name, node.weight});
    }
    std::ranges::sort(members, {}, &Member::name);
    return members;
}

std::optional<Proposal> propose(Instant window_start, Strategy strategy,
                                std::span<const Node> nodes, std::span<const Slot> slots) {
    const Agents agents(nodes);
    const std::vector<Member> members = members_of(nodes, agents, strategy);
    std::vector<std::string_view> frozen(slots.size()); // the agent; empty: to be dealt
    std::vector<std::int32_t> owners;
    for (std::size_t i = 0; i < slots.size(); ++i) {
        const std::string_view holder =
            slots[i].owner ? agents.holder(*slots[i].owner) : std::string_view{};
        if (agents.is_frozen(holder))
            frozen[i] = holder;
        else
            owners.push_back(index_of(members, holder));
    }
    if (members.empty() && !owners.empty())
        return std::nullopt;

    std::vector<std::int32_t> next;
    if (!owners.empty())
        next = assign(members, owners, strategy);
    Proposal proposal{window_start, {}, members.size(), 0};
    std::size_t dealt = 0;
    for (std::size_t i = 0; i < slots.size(); ++i) {
        if (!frozen[i].empty()) {
            grant(proposal, slots[i], frozen[i], i > 0);
            continue;
        }
        if (next[dealt] != owners[dealt])
            ++proposal.moved;
        grant(proposal, slots[i], members[static_cast<std::size_t>(next[dealt])].name, i > 0);
        ++dealt;
    }
    return proposal;
}

std::optional<Proposal> propose_part(Instant window_start, Strategy strategy,
                                     std::string_view agent, std::span<const Node> nodes,
                                     std::span<const Slot> slots) {
    const std::vector<Member> members = members_of_agent(nodes, agent);
    if (members.empty() || slots.empty())
        return std::nullopt;
    std::vector<std::int32_t> owners;
    for (const Slot &slot : slots)
        owners.push_back(slot.owner ? index_of(members, *slot.owner) : nobody);
    const std::vector<std::int32_t> next = assign(members, owners, strategy);

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
