// Windows of a ring with agents: the members of a master, the slots that an unresponsive agent
// keeps, and the parts of agents.
#include "roles/proposal.hpp"

#include "core/ring/slots.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>

namespace stacksaga::coordinator {
namespace {

constexpr std::int32_t slot_count = 64;

std::vector<Slot> slots_of_ring() {
    std::vector<Slot> slots;
    for (std::int32_t i = 0; i < slot_count; ++i) {
        const core::Range range = core::slot_range(i, slot_count);
        slots.push_back({i, range.first.value(), range.last.value(), std::nullopt});
    }
    return slots;
}

Node agent(std::string name, NodeState state = NodeState::active, bool frozen = false) {
    return {std::move(name), NodeKind::agent, state, 1, std::nullopt, frozen};
}

Node worker(std::string name, std::optional<std::string> of = std::nullopt,
            NodeState state = NodeState::active) {
    return {std::move(name), NodeKind::worker, state, 1, std::move(of)};
}

/// The grantee of each slot; empty for none.
std::vector<std::string> owners_in(const Proposal &proposal, std::span<const Slot> slots) {
    std::vector<std::string> owners;
    for (const Slot &slot : slots) {
        const auto found = std::ranges::find_if(proposal.grants, [&](const Grant &grant) {
            return grant.range_start <= slot.range_start && slot.range_end <= grant.range_end;
        });
        owners.push_back(found == proposal.grants.end() ? "" : found->node);
    }
    return owners;
}

std::map<std::string, int> counts_in(const Proposal &proposal, std::span<const Slot> slots) {
    std::map<std::string, int> counts;
    for (const std::string &owner : owners_in(proposal, slots))
        ++counts[owner];
    return counts;
}

std::vector<std::string> names_of(const std::vector<Member> &members) {
    std::vector<std::string> names;
    for (const Member &member : members)
        names.push_back(member.name);
    return names;
}

using Names = std::vector<std::string>;

TEST(MembersOf, AgentsStandForTheirWorkers) {
    const std::vector<Node> nodes{agent("a"), worker("a1", "a"), worker("a2", "a"), worker("w")};
    EXPECT_EQ(names_of(members_of(nodes, Strategy::consistent)), (Names{"a", "w"}));
    EXPECT_EQ(names_of(members_of_agent(nodes, "a")), (Names{"a1", "a2"}));
}

TEST(MembersOf, AnAgentWithoutAWorkerThatTakesSlotsGetsNone) {
    for (const NodeState state : {NodeState::suspected, NodeState::draining, NodeState::dead}) {
        const std::vector<Node> nodes{agent("a"), worker("a1", "a", state), worker("w")};
        EXPECT_EQ(names_of(members_of(nodes, Strategy::consistent)), (Names{"w"}));
    }
}

TEST(MembersOf, WorkersOfARemovedAgentAreTheMasters) {
    const std::vector<Node> without_agent{worker("a1", "a"), worker("w")};
    EXPECT_EQ(names_of(members_of(without_agent, Strategy::consistent)), (Names{"a1", "w"}));
    for (const NodeState state : {NodeState::suspected, NodeState::draining, NodeState::dead}) {
        const std::vector<Node> nodes{agent("a", state), worker("a1", "a"), worker("w")};
        EXPECT_EQ(names_of(members_of(nodes, Strategy::consistent)), (Names{"a1", "w"}));
    }
}

TEST(MembersOf, WorkersOfAFrozenAgentAreNobodys) {
    const std::vector<Node> nodes{agent("a", NodeState::suspected, true), worker("a1", "a"),
                                  worker("w")};
    EXPECT_EQ(names_of(members_of(nodes, Strategy::consistent)), (Names{"w"}));
}

TEST(ProposeWithAgents, SplitsTheRingAmongAgentsAndTheirPartsAmongWorkers) {
    const std::vector<Node> nodes{agent("a"), agent("b"), worker("a1", "a"), worker("a2", "a"),
                                  worker("b1", "b")};
    const auto slots = slots_of_ring();
    const auto whole = propose(Instant{}, Strategy::contiguous, nodes, slots);
    ASSERT_TRUE(whole);
    EXPECT_EQ(counts_in(*whole, slots), (std::map<std::string, int>{{"a", 32}, {"b", 32}}));
    EXPECT_EQ(whole->agent, "");

    const std::span<const Slot> assigned(slots.data(), 32);
    const auto part = propose_part(Instant{}, Strategy::contiguous, "a", nodes, assigned);
    ASSERT_TRUE(part);
    EXPECT_EQ(part->agent, "a");
    EXPECT_EQ(counts_in(*part, assigned), (std::map<std::string, int>{{"a1", 16}, {"a2", 16}}));
}

TEST(ProposeWithAgents, AWorkersShareIsTheSameFromAMasterAndAnAgent) {
    const std::vector<Node> nodes{agent("a"), worker("a1", "a"), worker("a2", "a"),
                                  worker("a3", "a"), worker("w")};
    const auto slots = slots_of_ring();
    const auto even = propose(Instant{}, Strategy::consistent, nodes, slots);
    ASSERT_TRUE(even);
    EXPECT_EQ(counts_in(*even, slots), (std::map<std::string, int>{{"a", 48}, {"w", 16}}));
    const auto nested = propose(Instant{}, Strategy::contiguous, nodes, slots);
    ASSERT_TRUE(nested);
    EXPECT_EQ(counts_in(*nested, slots), (std::map<std::string, int>{{"a", 32}, {"w", 32}}));
}

// Whatever the nodes are called, the next window leaves everything where it is.
TEST(ProposeWithAgents, ContiguousPartsStayWhereTheyAreWhenAnAgentIsLost) {
    std::vector<Node> nodes{agent("north"),        agent("south"),        worker("w1", "south"),
                            worker("w2", "north"), worker("w3", "south"), worker("w4", "north")};
    auto slots = slots_of_ring();
    const auto whole = propose(Instant{}, Strategy::contiguous, nodes, slots);
    ASSERT_TRUE(whole);
    for (const char *name : {"north", "south"}) {
        const std::size_t first = name == std::string("north") ? 0 : slots.size() / 2;
        const auto part = propose_part(Instant{}, Strategy::contiguous, name, nodes,
                                       std::span(slots).subspan(first, slots.size() / 2));
        ASSERT_TRUE(part);
        for (const Grant &grant : part->grants)
            for (Slot &slot : slots)
                if (grant.range_start <= slot.range_start && slot.range_end <= grant.range_end)
                    slot.owner = grant.node;
    }
    for (const NodeState state : {NodeState::suspected, NodeState::dead, NodeState::draining}) {
        nodes[1].state = state;
        const auto next = propose(Instant{}, Strategy::contiguous, nodes, slots);
        ASSERT_TRUE(next);
        EXPECT_EQ(next->moved, 0);
        EXPECT_EQ(counts_in(*next, slots),
                  (std::map<std::string, int>{{"north", 32}, {"w1", 16}, {"w3", 16}}));
    }
    nodes.erase(nodes.begin() + 1); // its row is removed
    EXPECT_EQ(propose(Instant{}, Strategy::contiguous, nodes, slots)->moved, 0);
}

TEST(ProposeWithAgents, AWorkersSlotsAreItsAgents) {
    const std::vector<Node> nodes{agent("a"), agent("b"), worker("a1", "a"), worker("b1", "b")};
    auto slots = slots_of_ring();
    for (Slot &slot : slots)
        slot.owner = slot.number % 2 == 0 ? "a1" : "b1";
    const auto proposal = propose(Instant{}, Strategy::consistent, nodes, slots);
    ASSERT_TRUE(proposal);
    EXPECT_EQ(proposal->moved, 0U);
    const auto owners = owners_in(*proposal, slots);
    for (const Slot &slot : slots)
        EXPECT_EQ(owners[static_cast<std::size_t>(slot.number)], slot.number % 2 == 0 ? "a" : "b");
}

TEST(ProposeWithAgents, SlotsOfAFrozenAgentStayAndTheOthersAreAssigned) {
    const std::vector<Node> nodes{agent("a", NodeState::dead, true),
                                  agent("b"),
                                  agent("c"),
                                  worker("a1", "a"),
                                  worker("b1", "b"),
                                  worker("c1", "c")};
    for (const Strategy strategy : {Strategy::consistent, Strategy::contiguous}) {
        auto slots = slots_of_ring();
        for (Slot &slot : slots)
            slot.owner = slot.number < 20 ? "a1" : "b1";
        const auto proposal = propose(Instant{}, strategy, nodes, slots);
        ASSERT_TRUE(proposal);
        EXPECT_EQ(counts_in(*proposal, slots),
                  (std::map<std::string, int>{{"a", 20}, {"b", 22}, {"c", 22}}));
        const auto owners = owners_in(*proposal, slots);
        EXPECT_TRUE(std::all_of(owners.begin(), owners.begin() + 20,
                                [](const std::string &owner) { return owner == "a"; }));
    }
}

TEST(ProposeWithAgents, WhereAllIsFrozenTheWindowIsPublishedAllTheSame) {
    const std::vector<Node> nodes{agent("a", NodeState::dead, true), worker("a1", "a")};
    auto slots = slots_of_ring();
    for (Slot &slot : slots)
        slot.owner = "a1";
    const auto proposal = propose(Instant{}, Strategy::consistent, nodes, slots);
    ASSERT_TRUE(proposal);
    ASSERT_EQ(proposal->grants.size(), 1U);
    EXPECT_EQ(proposal->grants[0].node, "a");
    EXPECT_EQ(proposal->moved, 0U);
    slots[5].owner.reset();
    EXPECT_FALSE(propose(Instant{}, Strategy::consistent, nodes, slots)) << "nobody for slot 5";
}

TEST(ProposePart, GapsAreNotGranted) {
    const std::vector<Node> nodes{agent("a"), worker("a1", "a")};
    const auto all = slots_of_ring();
    const std::vector<Slot> assigned{all[3], all[4], all[7]};
    const auto part = propose_part(Instant{}, Strategy::consistent, "a", nodes, assigned);
    ASSERT_TRUE(part);
    EXPECT_EQ(part->grants, (std::vector<Grant>{{"a1", all[3].range_start, all[4].range_end},
                                                {"a1", all[7].range_start, all[7].range_end}}));
}

TEST(ProposePart, ProposesNothingWithoutSlotsOrWorkers) {
    const std::vector<Node> nodes{agent("a"), worker("a1", "a"), worker("b1", "b")};
    const auto slots = slots_of_ring();
    EXPECT_FALSE(propose_part(Instant{}, Strategy::consistent, "a", nodes, {}));
    EXPECT_FALSE(propose_part(Instant{}, Strategy::consistent, "c", nodes, slots));
}

/// Random agents, workers and owners: the parts of all agents together grant every slot that the
/// master gave to agents exactly once, to a worker of the agent; each worker ends within one slot
/// of its share of the part.
TEST(ProposePart, PartsTileTheSlotsOfTheirAgent) {
    std::mt19937_64 random(11);
    const auto draw = [&](int below) {
        return static_cast<int>(random() % static_cast<std::uint64_t>(below));
    };
    for (int round = 0; round < 2000; ++round) {
        std::vector<Node> nodes;
        const int agents = 1 + draw(5);
        for (int a = 0; a < agents; ++a) {
            const std::string name = "a" + std::to_string(a);
            nodes.push_back(agent(name, NodeState::active));
            for (int w = 0; w <= draw(4); ++w)
                nodes.push_back(worker(name + "." + std::to_string(w), name));
        }
        const Strategy strategy = draw(2) == 0 ? Strategy::consistent : Strategy::contiguous;
        auto slots = slots_of_ring();
        for (Slot &slot : slots) {
            const Node &any = nodes[static_cast<std::size_t>(draw(static_cast<int>(nodes.size())))];
            if (any.kind == NodeKind::worker)
                slot.owner = any.name;
        }
        const auto whole = propose(Instant{}, strategy, nodes, slots);
        ASSERT_TRUE(whole);
        const auto assigned_to = owners_in(*whole, slots);
        std::size_t granted = 0;
        for (const Member &member : members_of(nodes, Strategy::consistent)) {
            std::vector<Slot> assigned;
            for (const Slot &slot : slots) {
                if (assigned_to[static_cast<std::size_t>(slot.number)] == member.name)
                    assigned.push_back(slot);
            }
            const auto part = propose_part(Instant{}, strategy, member.name, nodes, assigned);
            if (assigned.empty()) {
                EXPECT_FALSE(part);
                continue;
            }
            ASSERT_TRUE(part);
            const auto counts = counts_in(*part, assigned);
            int least = slot_count;
            int most = 0;
            for (const Member &own : members_of_agent(nodes, member.name)) {
                const int count = counts.contains(own.name) ? counts.at(own.name) : 0;
                least = std::min(least, count);
                most = std::max(most, count);
                granted += static_cast<std::size_t>(count);
            }
            EXPECT_LE(most - least, 1);
        }
        EXPECT_EQ(granted, slots.size());
    }
}

} // namespace
} // namespace stacksaga::coordinator
