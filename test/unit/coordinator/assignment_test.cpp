// Properties of the assignment, over every number of members from 1 to 64 with random weights and
// random owners.
#include "roles/proposal.hpp"

#include "core/ring/slots.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace stacksaga::coordinator {
namespace {

constexpr std::int32_t slot_count = 256;
using Random = std::mt19937_64;

std::vector<Slot> slots_of_ring(std::int32_t count) {
    std::vector<Slot> slots;
    for (std::int32_t i = 0; i < count; ++i) {
        const core::Range range = core::slot_range(i, count);
        slots.push_back({i, range.first.value(), range.last.value(), std::nullopt});
    }
    return slots;
}

std::vector<Member> equal_members(std::size_t count) {
    std::vector<Member> members;
    for (std::size_t i = 0; i < count; ++i)
        members.push_back({"node-" + std::to_string(i), 1});
    std::ranges::sort(members, {}, &Member::name);
    return members;
}

std::vector<Member> random_members(std::size_t count, Random &random) {
    std::lognormal_distribution<double> weight(0, 1);
    std::vector<Member> members = equal_members(count);
    for (Member &member : members)
        member.weight = weight(random);
    return members;
}

std::vector<std::int32_t> random_owners(std::size_t members, std::int32_t slots, Random &random) {
    std::uniform_int_distribution<std::int32_t> any(nobody, static_cast<std::int32_t>(members) - 1);
    std::vector<std::int32_t> owners(static_cast<std::size_t>(slots));
    std::ranges::generate(owners, [&] { return any(random); });
    return owners;
}

std::vector<std::int32_t> counts(std::span<const std::int32_t> owners, std::size_t members) {
    std::vector<std::int32_t> result(members);
    for (const std::int32_t owner : owners) {
        if (owner != nobody)
            ++result[static_cast<std::size_t>(owner)];
    }
    return result;
}

std::size_t moves(std::span<const std::int32_t> before, std::span<const std::int32_t> after) {
    std::size_t moved = 0;
    for (std::size_t i = 0; i < before.size(); ++i)
        moved += before[i] != after[i] ? 1 : 0;
    return moved;
}

double share(std::span<const Member> members, std::size_t i, std::int32_t slots) {
    double total = 0;
    for (const Member &member : members)
        total += member.weight;
    return slots * members[i].weight / total;
}

void expect_balanced(std::span<const Member> members, std::span<const std::int32_t> owners) {
    const auto held = counts(owners, members.size());
    ASSERT_EQ(std::accumulate(held.begin(), held.end(), 0), static_cast<int>(owners.size()));
    for (std::size_t i = 0; i < members.size(); ++i)
        EXPECT_LT(std::abs(held[i] - share(members, i, static_cast<std::int32_t>(owners.size()))),
                  1 + 1e-6)
            << members[i].name;
}

/// The fewest slots that any assignment within one slot of the shares must move.
std::size_t fewest_moves(std::span<const Member> members, std::span<const std::int32_t> owners) {
    const auto slots = static_cast<std::int32_t>(owners.size());
    const auto held = counts(owners, members.size());
    std::int32_t left = slots;
    std::int32_t kept = 0;
    std::int32_t could_keep_one_more = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
        const double exact = share(members, i, slots);
        const auto low = static_cast<std::int32_t>(std::floor(exact));
        left -= low;
        kept += std::min(held[i], low);
        could_keep_one_more += held[i] > low && exact > low ? 1 : 0;
    }
    return static_cast<std::size_t>(slots - kept - std::min(left, could_keep_one_more));
}

TEST(Assignment, BalancesWithinOneSlotForEveryMembership) {
    Random random(1);
    for (const Strategy strategy : {Strategy::consistent, Strategy::contiguous}) {
        for (std::size_t count = 1; count <= 64; ++count) {
            for (const std::int32_t slots : {64, 256, 1024}) {
                const auto members = random_members(count, random);
                const auto owners = random_owners(count, slots, random);
                expect_balanced(members, assign(members, owners, strategy));
            }
        }
    }
}

TEST(Assignment, BalancesMoreMembersThanSlots) {
    Random random(2);
    const auto members = equal_members(5000);
    for (const Strategy strategy : {Strategy::consistent, Strategy::contiguous})
        expect_balanced(members, assign(members, random_owners(5000, 256, random), strategy));
}

TEST(Assignment, MovesAsFewSlotsAsBalanceAllows) {
    Random random(3);
    for (std::size_t count = 1; count <= 64; ++count) {
        const auto members = random_members(count, random);
        const auto owners = random_owners(count, slot_count, random);
        const auto next = assign(members, owners, Strategy::consistent);
        EXPECT_EQ(moves(owners, next), fewest_moves(members, owners)) << count << " members";
    }
}

TEST(Assignment, IsStableOnceAssigned) {
    Random random(4);
    for (std::size_t count = 1; count <= 64; ++count) {
        const auto members = random_members(count, random);
        const auto first =
            assign(members, random_owners(count, slot_count, random), Strategy::consistent);
        EXPECT_EQ(assign(members, first, Strategy::consistent), first);
    }
}

TEST(Assignment, AnyNumberOfVirtualNodesIsBalancedAndDecides) {
    const auto members = equal_members(7);
    const std::vector<std::int32_t> free(slot_count, nobody);
    const auto usual = assign(members, free, Strategy::consistent);
    EXPECT_EQ(assign(members, free, {Strategy::consistent, 128}), usual);
    for (const std::int32_t points : {1, 2, 127, 1024}) {
        const auto next = assign(members, free, {Strategy::consistent, points});
        expect_balanced(members, next);
        EXPECT_NE(next, usual) << points;
        EXPECT_EQ(assign(members, next, {Strategy::consistent, points}), next);
    }
}

/// Owners by member index after members were added or removed, by name.
std::vector<std::int32_t> reindexed(std::span<const std::int32_t> owners,
                                    std::span<const Member> from, std::span<const Member> to) {
    std::vector<std::int32_t> result;
    for (const std::int32_t owner : owners) {
        const auto found =
            std::ranges::find(to, from[static_cast<std::size_t>(owner)].name, &Member::name);
        result.push_back(found == to.end() ? nobody
                                           : static_cast<std::int32_t>(found - to.begin()));
    }
    return result;
}

TEST(Assignment, AJoinMovesOnlyTheNewcomersShare) {
    Random random(5);
    for (std::size_t count = 1; count < 64; ++count) {
        auto all = equal_members(count + 1);
        auto before = all;
        const std::size_t newcomer = random() % all.size();
        before.erase(before.begin() + static_cast<std::ptrdiff_t>(newcomer));
        const auto assigned =
            assign(before, std::vector<std::int32_t>(slot_count, nobody), Strategy::consistent);

        const auto owners = reindexed(assigned, before, all);
        const auto next = assign(all, owners, Strategy::consistent);
        EXPECT_LE(moves(owners, next), slot_count / all.size() + 1);
        for (std::size_t slot = 0; slot < next.size(); ++slot) {
            EXPECT_TRUE(next[slot] == owners[slot] ||
                        next[slot] == static_cast<std::int32_t>(newcomer))
                << "a survivor gained slot " << slot;
        }
    }
}

TEST(Assignment, ALeaveMovesOnlyTheLeaversSlots) {
    Random random(6);
    for (std::size_t count = 2; count <= 64; ++count) {
        const auto all = equal_members(count);
        auto after = all;
        after.erase(after.begin() + static_cast<std::ptrdiff_t>(random() % all.size()));
        const auto assigned =
            assign(all, std::vector<std::int32_t>(slot_count, nobody), Strategy::consistent);

        const auto owners = reindexed(assigned, all, after);
        const auto next = assign(after, owners, Strategy::consistent);
        for (std::size_t slot = 0; slot < next.size(); ++slot)
            EXPECT_TRUE(owners[slot] == nobody || next[slot] == owners[slot])
                << "a survivor lost slot " << slot;
    }
}

TEST(Assignment, ConsistentScattersALeaversSlotsOverAllSurvivors) {
    const auto all = equal_members(9);
    const auto assigned =
        assign(all, std::vector<std::int32_t>(slot_count, nobody), Strategy::consistent);
    const std::vector<Member> after(all.begin(), all.end() - 1);
    const auto owners = reindexed(assigned, all, after);
    const auto next = assign(after, owners, Strategy::consistent);
    std::set<std::int32_t> heirs;
    for (std::size_t slot = 0; slot < next.size(); ++slot) {
        if (next[slot] != owners[slot])
            heirs.insert(next[slot]);
    }
    EXPECT_EQ(heirs.size(), after.size());
}

TEST(Assignment, ContiguousAssignsEqualRunsTheFirstOnesLarger) {
    for (std::size_t count = 1; count <= 64; ++count) {
        const auto next =
            assign(equal_members(count), std::vector<std::int32_t>(slot_count, nobody),
                   Strategy::contiguous);
        EXPECT_TRUE(std::ranges::is_sorted(next));
        const auto runs = counts(next, count);
        for (std::size_t i = 0; i < count; ++i)
            EXPECT_EQ(runs[i], slot_count / static_cast<std::int32_t>(count) +
                                   (i < slot_count % count ? 1 : 0));
    }
}

// Those before a member that is lost keep their beginnings, those behind it their ends; in any
// order of names.
TEST(Assignment, ContiguousRunsKeepTheirOrderAndAreStable) {
    Random random(14);
    for (std::size_t count = 2; count <= 64; ++count) {
        std::vector<std::int32_t> order(count);
        std::iota(order.begin(), order.end(), 0);
        std::ranges::shuffle(order, random);
        std::vector<std::int32_t> owners;
        for (std::int32_t slot = 0; slot < slot_count; ++slot)
            owners.push_back(order[static_cast<std::size_t>(slot) * count / slot_count]);
        const auto members = equal_members(count);
        const auto next = assign(members, owners, Strategy::contiguous);
        EXPECT_LE(moves(owners, next), count) << "no more than rounding";
        EXPECT_EQ(assign(members, next, Strategy::contiguous), next);
        // The last of them is lost: its index is nobody's, and one slot in two of the others moves
        // at most.
        std::vector<std::int32_t> left = next;
        std::ranges::replace(left, static_cast<std::int32_t>(count) - 1, nobody);
        if (count == 2)
            continue;
        const auto after = assign(equal_members(count - 1), left, Strategy::contiguous);
        EXPECT_LE(moves(left, after), slot_count / 2 + slot_count / count + count)
            << "and rounding";
        EXPECT_EQ(assign(equal_members(count - 1), after, Strategy::contiguous), after);
    }
}

TEST(Assignment, WeightsOfAnyMagnitudeAreShares) {
    const double huge = std::numeric_limits<double>::max();
    const double tiny = std::numeric_limits<double>::denorm_min();
    const std::vector<std::int32_t> free(slot_count, nobody);
    const std::vector<Member> huge_ones{{"a", huge}, {"b", huge}, {"c", huge / 2}};
    EXPECT_EQ(quotas(huge_ones, {}, 250), (std::vector<std::int32_t>{100, 100, 50}));
    const std::vector<Member> tiny_ones{{"a", tiny}, {"b", tiny}};
    EXPECT_EQ(quotas(tiny_ones, {}, 256), (std::vector<std::int32_t>{128, 128}));
    const std::vector<Member> both{{"a", huge}, {"b", tiny}};
    EXPECT_EQ(counts(assign(both, free, Strategy::consistent), 2),
              (std::vector<std::int32_t>{256, 0}));
}

// ---------------------------------------------------------------------------- nodes to proposal

Node node(std::string name, NodeState state = NodeState::active, NodeKind kind = NodeKind::worker,
          double weight = 1) {
    return {std::move(name), kind, state, weight};
}

TEST(Members, AreActiveWorkersAndAgentsOfPositiveWeight) {
    EXPECT_TRUE(takes_slots(node("a")));
    EXPECT_TRUE(takes_slots(node("a", NodeState::active, NodeKind::agent)));
    EXPECT_FALSE(takes_slots(node("a", NodeState::active, NodeKind::standard)));
    EXPECT_FALSE(takes_slots(node("a", NodeState::active, NodeKind::unknown)));
    for (const NodeState state :
         {NodeState::suspected, NodeState::dead, NodeState::draining, NodeState::unknown})
        EXPECT_FALSE(takes_slots(node("a", state)));
    for (const double weight : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                                std::numeric_limits<double>::quiet_NaN()})
        EXPECT_FALSE(takes_slots(node("a", NodeState::active, NodeKind::worker, weight)));
}

void expect_tiles(const Proposal &proposal) {
    ASSERT_FALSE(proposal.grants.empty());
    EXPECT_EQ(proposal.grants.front().range_start, std::numeric_limits<std::int64_t>::min());
    EXPECT_EQ(proposal.grants.back().range_end, std::numeric_limits<std::int64_t>::max());
    for (std::size_t i = 1; i < proposal.grants.size(); ++i) {
        EXPECT_EQ(proposal.grants[i - 1].range_end + 1, proposal.grants[i].range_start);
        EXPECT_NE(proposal.grants[i - 1].node, proposal.grants[i].node) << "not merged";
    }
}

TEST(Propose, TilesTheRingForEveryMembership) {
    Random random(7);
    for (const Strategy strategy : {Strategy::consistent, Strategy::contiguous}) {
        auto slots = slots_of_ring(slot_count);
        for (std::size_t count = 1; count <= 64; ++count) {
            std::vector<Node> nodes;
            for (const Member &member : random_members(count, random))
                nodes.push_back(
                    node(member.name, NodeState::active, NodeKind::worker, member.weight));
            const auto proposal = propose(Instant{}, strategy, nodes, slots);
            ASSERT_TRUE(proposal);
            EXPECT_EQ(proposal->nodes, count);
            expect_tiles(*proposal);
            for (Slot &slot : slots) // owners of the next round: the nodes of this one
                slot.owner = std::ranges::find_if(proposal->grants, [&](const Grant &grant) {
                                 return grant.range_start <= slot.range_start &&
                                        slot.range_end <= grant.range_end;
                             })->node;
        }
    }
}

TEST(Propose, TilesTheRingWithinOneSlotOfTheWeightsForThousandsOfMemberships) {
    Random random(9);
    for (int i = 0; i < 4000; ++i) {
        const auto strategy = i % 2 == 0 ? Strategy::consistent : Strategy::contiguous;
        const std::int32_t count = 64 << random() % 4;
        const auto members = random_members(1 + random() % 100, random);
        auto slots = slots_of_ring(count);
        for (Slot &slot : slots) // some have a removed owner, some have none
            if (random() % 4 != 0)
                slot.owner = "node-" + std::to_string(random() % (2 * members.size()));
        std::vector<Node> nodes;
        for (const Member &member : members)
            nodes.push_back(node(member.name, NodeState::active, NodeKind::worker, member.weight));
        const auto proposal = propose(Instant{}, strategy, nodes, slots);
        ASSERT_TRUE(proposal);
        expect_tiles(*proposal);

        std::vector<std::int32_t> owners;
        for (const Grant &grant : proposal->grants) {
            const auto found = std::ranges::find(members, grant.node, &Member::name);
            ASSERT_NE(found, members.end());
            const auto size = core::Range{core::Token::from_int64(grant.range_start),
                                          core::Token::from_int64(grant.range_end)}
                                  .size() /
                              core::slot_range(0, count).size();
            owners.insert(owners.end(), static_cast<std::size_t>(size),
                          static_cast<std::int32_t>(found - members.begin()));
        }
        ASSERT_EQ(owners.size(), static_cast<std::size_t>(count));
        expect_balanced(members, owners);
    }
}

TEST(Propose, DoesNotDependOnTheOrderOfNodes) {
    Random random(8);
    std::vector<Node> nodes; // equal weights: only the names differ
    for (const Member &member : equal_members(40))
        nodes.push_back(node(member.name));
    auto slots = slots_of_ring(slot_count);
    for (Slot &slot : slots)
        slot.owner = nodes[random() % nodes.size()].name;
    for (const Strategy strategy : {Strategy::consistent, Strategy::contiguous}) {
        const auto first = propose(Instant{}, strategy, nodes, slots);
        for (int i = 0; i < 10; ++i) {
            std::ranges::shuffle(nodes, random);
            const auto other = propose(Instant{}, strategy, nodes, slots);
            EXPECT_EQ(other->grants, first->grants);
            EXPECT_EQ(other->moved, first->moved);
        }
    }
}

TEST(Propose, TakesSlotsFromSuspectedAndDrainingNodes) {
    auto slots = slots_of_ring(64);
    for (Slot &slot : slots)
        slot.owner = slot.number < 32 ? "hung" : "leaving";
    const std::vector<Node> nodes{node("hung", NodeState::suspected),
                                  node("leaving", NodeState::draining), node("well")};
    const auto proposal = propose(Instant{}, Strategy::consistent, nodes, slots);
    ASSERT_TRUE(proposal);
    ASSERT_EQ(proposal->grants.size(), 1U);
    EXPECT_EQ(proposal->grants[0].node, "well");
    EXPECT_EQ(proposal->moved, 64U);
}

TEST(Propose, ProposesNothingWithoutMembers) {
    const auto slots = slots_of_ring(64);
    EXPECT_FALSE(propose(Instant{}, Strategy::consistent, {}, slots));
    const std::vector<Node> nodes{node("a", NodeState::dead)};
    EXPECT_FALSE(propose(Instant{}, Strategy::contiguous, nodes, slots));
}

} // namespace
} // namespace stacksaga::coordinator
