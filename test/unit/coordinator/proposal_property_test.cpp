// Properties of windows and parts over thousands of random rings: agents and workers in every
// state, of every weight, and slots with any owner or none.
#include "roles/proposal.hpp"

#include "core/ring/slots.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

namespace stacksaga::coordinator {
namespace {

constexpr std::int32_t slot_count = 128;
constexpr int rounds = 3000;

struct Ring {
    std::vector<Node> nodes;
    std::vector<Slot> slots;
    Strategy strategy = Strategy::consistent;
};

class Draw {
public:
    explicit Draw(std::uint64_t seed) : random_(seed) {}

    int below(int most) { return static_cast<int>(random_() % static_cast<std::uint64_t>(most)); }

    Ring ring(bool with_trouble) {
        Ring ring;
        const int agents = 1 + below(5);
        for (int a = 0; a < agents; ++a) {
            Node agent{"agent-" + std::to_string(a), NodeKind::agent, state(with_trouble),
                       weight()};
            agent.frozen =
                (agent.state == NodeState::suspected || agent.state == NodeState::dead) && below(2);
            ring.nodes.push_back(agent);
        }
        for (int w = 1 + below(24); w > 0; --w) {
            const int of = below(agents + 1);
            ring.nodes.push_back(
                {"worker-" + std::to_string(w), NodeKind::worker, state(with_trouble), weight(),
                 of == agents ? std::nullopt : std::optional("agent-" + std::to_string(of))});
        }
        std::ranges::shuffle(ring.nodes, random_);
        ring.strategy = below(3) == 0 ? Strategy::contiguous : Strategy::consistent;
        for (std::int32_t i = 0; i < slot_count; ++i) {
            const core::Range range = core::slot_range(i, slot_count);
            ring.slots.push_back({i, range.first.value(), range.last.value(), owner(ring)});
        }
        return ring;
    }

    void shuffle(std::vector<Node> &nodes) { std::ranges::shuffle(nodes, random_); }

private:
    NodeState state(bool with_trouble) {
        constexpr std::array<NodeState, 4> rare{NodeState::suspected, NodeState::dead,
                                                NodeState::draining, NodeState::unknown};
        return with_trouble && below(3) == 0 ? rare[static_cast<std::size_t>(below(4))]
                                             : NodeState::active;
    }

    double weight() { return below(2) == 0 ? 1 : std::ldexp(1 + below(8), below(4) - 2); }

    /// A worker of the ring, a removed one, or none.
    std::optional<std::string> owner(const Ring &ring) {
        const Node &any =
            ring.nodes[static_cast<std::size_t>(below(static_cast<int>(ring.nodes.size())))];
        if (any.kind == NodeKind::worker)
            return any.name;
        return below(2) == 0 ? std::nullopt : std::optional<std::string>("removed");
    }

    std::mt19937_64 random_;
};

/// The grantee of each slot, by its number. Fails unless every grant ends at slot borders and every
/// slot is in exactly one grant.
std::map<std::int32_t, std::string> granted(const Proposal &proposal, std::span<const Slot> slots) {
    std::map<std::int32_t, std::string> owners;
    std::size_t slot = 0;
    for (const Grant &grant : proposal.grants) {
        EXPECT_LT(slot, slots.size());
        if (slot == slots.size())
            return owners;
        EXPECT_EQ(grant.range_start, slots[slot].range_start);
        for (; slot < slots.size() && slots[slot].range_end <= grant.range_end; ++slot)
            owners[slots[slot].number] = grant.node;
        EXPECT_EQ(slots[slot - 1].range_end, grant.range_end);
    }
    EXPECT_EQ(slot, slots.size());
    return owners;
}

const Node *find(const Ring &ring, const std::string &name) {
    const auto found = std::ranges::find(ring.nodes, name, &Node::name);
    return found == ring.nodes.end() ? nullptr : &*found;
}

/// The slots that are assigned to an agent, each with the worker of the agent that owns it.
std::vector<Slot> assigned_to(const std::string &agent, const Ring &ring,
                              const std::map<std::int32_t, std::string> &owners) {
    std::vector<Slot> assigned;
    for (Slot slot : ring.slots) {
        if (owners.at(slot.number) != agent)
            continue;
        const Node *owner = slot.owner ? find(ring, *slot.owner) : nullptr;
        if (owner == nullptr || owner->agent != agent)
            slot.owner.reset();
        assigned.push_back(slot);
    }
    return assigned;
}

/// The ring after a window and the parts of all its agents; nullopt when nothing is published.
std::optional<Ring> after_window(const Ring &ring) {
    const auto whole = propose(Instant{}, ring.strategy, ring.nodes, ring.slots);
    if (!whole)
        return std::nullopt;
    auto owners = granted(*whole, ring.slots);
    for (const Node &node : ring.nodes) {
        if (node.kind != NodeKind::agent || node.state != NodeState::active)
            continue;
        const auto assigned = assigned_to(node.name, ring, owners);
        const auto part = propose_part(Instant{}, ring.strategy, node.name, ring.nodes, assigned);
        EXPECT_EQ(part.has_value(), !assigned.empty()) << node.name;
        if (!part)
            continue;
        EXPECT_EQ(part->agent, node.name);
        for (const auto &[slot, owner] : granted(*part, assigned)) {
            const Node *worker = find(ring, owner);
            EXPECT_TRUE(worker != nullptr && worker->agent == node.name && takes_slots(*worker));
            owners[slot] = owner;
        }
    }
    Ring after = ring;
    for (Slot &slot : after.slots)
        slot.owner = owners.at(slot.number);
    return after;
}

std::int32_t moved(const Ring &before, const Ring &after) {
    std::int32_t count = 0;
    for (std::size_t i = 0; i < before.slots.size(); ++i)
        count += before.slots[i].owner == after.slots[i].owner ? 0 : 1;
    return count;
}

TEST(WindowsWithAgents, TileTheRingInEveryStateOfNodes) {
    Draw draw(1);
    for (int round = 0; round < rounds; ++round) {
        const Ring ring = draw.ring(true);
        const auto whole = propose(Instant{}, ring.strategy, ring.nodes, ring.slots);
        if (!whole) {
            EXPECT_TRUE(members_of(ring.nodes, ring.strategy).empty());
            continue;
        }
        for (const auto &[slot, name] : granted(*whole, ring.slots)) {
            const Node *node = find(ring, name);
            ASSERT_NE(node, nullptr);
            EXPECT_TRUE(node->frozen || takes_slots(*node)) << name;
        }
    }
}

TEST(WindowsWithAgents, LeaveTheSlotsOfFrozenAgentsAndNoOthers) {
    Draw draw(2);
    for (int round = 0; round < rounds; ++round) {
        const Ring ring = draw.ring(true);
        const auto whole = propose(Instant{}, ring.strategy, ring.nodes, ring.slots);
        if (!whole)
            continue;
        const auto owners = granted(*whole, ring.slots);
        for (const Slot &slot : ring.slots) {
            const Node *owner = slot.owner ? find(ring, *slot.owner) : nullptr;
            const Node *agent =
                owner != nullptr && owner->agent ? find(ring, *owner->agent) : nullptr;
            const bool is_frozen = agent != nullptr && agent->frozen;
            const Node *next = find(ring, owners.at(slot.number));
            EXPECT_EQ(next->frozen, is_frozen) << slot.number;
            EXPECT_TRUE(!is_frozen || next->name == agent->name) << slot.number;
        }
    }
}

TEST(WindowsWithAgents, DoNotDependOnTheOrderOfNodes) {
    Draw draw(3);
    for (int round = 0; round < rounds / 10; ++round) {
        Ring ring = draw.ring(true);
        const auto one = propose(Instant{}, ring.strategy, ring.nodes, ring.slots);
        draw.shuffle(ring.nodes);
        const auto other = propose(Instant{}, ring.strategy, ring.nodes, ring.slots);
        ASSERT_EQ(one.has_value(), other.has_value());
        EXPECT_TRUE(!one || one->grants == other->grants);
    }
}

TEST(WindowsWithAgents, MoveNothingOnceAllIsAssigned) {
    Draw draw(4);
    for (int round = 0; round < rounds; ++round) {
        const auto once = after_window(draw.ring(false));
        ASSERT_TRUE(once);
        const auto twice = after_window(*once);
        ASSERT_TRUE(twice);
        EXPECT_EQ(moved(*once, *twice), 0);
    }
}

/// A window that is published while some nodes have taken over what the one before it gave them,
/// and others not yet, gives each slot to the same node: else the others might never get theirs.
TEST(WindowsWithAgents, GiveTheSameWhileSlotsAreBeingTakenOver) {
    Draw draw(6);
    for (int round = 0; round < rounds; ++round) {
        Ring ring = draw.ring(true);
        const auto first = propose(Instant{}, ring.strategy, ring.nodes, ring.slots);
        if (!first)
            continue;
        const auto given = granted(*first, ring.slots);
        for (Slot &slot : ring.slots)
            (draw.below(2) == 0 ? slot.owner : slot.next_owner) = given.at(slot.number);
        const auto second = propose(Instant{}, ring.strategy, ring.nodes, ring.slots);
        ASSERT_TRUE(second);
        EXPECT_EQ(granted(*second, ring.slots), given);
        EXPECT_EQ(second->moved, 0);
    }
}

/// A node that takes no slots any more does not take what an earlier window gave it.
TEST(WindowsWithAgents, GiveNothingToNextOwnersThatAreLost) {
    Draw draw(7);
    for (int round = 0; round < rounds; ++round) {
        Ring ring = draw.ring(true);
        for (Slot &slot : ring.slots)
            slot.next_owner = ring.nodes[static_cast<std::size_t>(
                                             draw.below(static_cast<int>(ring.nodes.size())))]
                                  .name;
        const auto whole = propose(Instant{}, ring.strategy, ring.nodes, ring.slots);
        if (!whole)
            continue;
        for (const auto &[slot, name] : granted(*whole, ring.slots)) {
            const Node *node = find(ring, name);
            ASSERT_NE(node, nullptr);
            EXPECT_TRUE(node->frozen || takes_slots(*node)) << name;
        }
    }
}

/// Workers of a lost agent become the master's: slots move only for rounding, at most one for each
/// member.
TEST(WindowsWithAgents, MoveNextToNothingWhenAnAgentIsLostOrComesBack) {
    Draw draw(5);
    for (int round = 0; round < rounds; ++round) {
        Ring ring = draw.ring(false);
        ring.strategy = Strategy::consistent;
        for (Node &node : ring.nodes)
            node.weight = node.kind == NodeKind::agent ? 1 : node.weight;
        const auto with = after_window(ring);
        ASSERT_TRUE(with);
        Ring bereft = *with;
        for (Node &node : bereft.nodes) {
            if (node.name == "agent-0")
                node.state = NodeState::dead;
        }
        const auto without = after_window(bereft);
        ASSERT_TRUE(without);
        Ring again = *without;
        again.nodes = ring.nodes;
        const auto back = after_window(again);
        ASSERT_TRUE(back);
        const auto most = static_cast<std::int32_t>(ring.nodes.size());
        EXPECT_LE(moved(*with, *without), most);
        EXPECT_LE(moved(*without, *back), most);
    }
}

} // namespace
} // namespace stacksaga::coordinator
