// Properties of a hand-over, over thousands of random rings: it gives the slots of a leaver to the
// nodes that the next window would give them to, and nothing else.
#include "roles/proposal.hpp"

#include "core/ring/hand_over.hpp"
#include "core/ring/slots.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace stacksaga::coordinator {
namespace {

constexpr std::int32_t slot_count = 64;
constexpr int rounds = 2000;
using Random = std::mt19937_64;

struct Ring {
    std::vector<core::RingNode> views;
    std::vector<Node> nodes; ///< sorted by name
    std::vector<std::int32_t> owners;
    Strategy strategy = Strategy::consistent;
    std::int32_t leaver = 0;
};

std::vector<std::int32_t> successors_of(const Ring &ring) {
    std::vector<std::byte> memory(
        core::HandOver::scratch_bytes(ring.views.size(), ring.owners.size(), ring.strategy));
    std::vector<std::int32_t> result(ring.owners.size());
    core::HandOver(ring.views, ring.strategy, ring.leaver, ring.owners,
                   core::Scratch(memory.data()))
        .choose(result);
    return result;
}

/// Workers and agents of all states; the leaver is a worker that drains.
Ring draw(Random &random, int agents) {
    Ring ring;
    ring.strategy = random() % 3 == 0 ? Strategy::contiguous : Strategy::consistent;
    const auto name_of = [](int agent) { return "agent-" + std::to_string(agent); };
    for (int i = 0; i < agents; ++i) {
        const bool is_silent = random() % 4 == 0;
        ring.nodes.push_back({name_of(i), NodeKind::agent,
                              is_silent ? NodeState::suspected : NodeState::active, 1, std::nullopt,
                              is_silent && random() % 2 == 0});
    }
    const int workers = 1 + static_cast<int>(random() % 9);
    for (int i = 0; i < workers; ++i) {
        const NodeState state = random() % 5 == 0 ? NodeState::dead : NodeState::active;
        const int agent = agents == 0 ? 0 : static_cast<int>(random() % (agents + 1));
        ring.nodes.push_back({"worker-" + std::to_string(i), NodeKind::worker, state,
                              static_cast<double>(1 + random() % 3),
                              agent < agents ? std::optional(name_of(agent)) : std::nullopt});
    }
    ring.leaver = agents + static_cast<std::int32_t>(random() % static_cast<unsigned>(workers));
    ring.nodes[static_cast<std::size_t>(ring.leaver)].state = NodeState::draining;
    for (const Node &node : ring.nodes)
        ring.views.push_back({node.name, node.kind,
                              node.state == NodeState::active     ? core::NodeState::active
                              : node.state == NodeState::draining ? core::NodeState::draining
                                                                  : core::NodeState::dead,
                              node.weight, node.agent ? std::string_view(*node.agent) : "",
                              node.frozen});
    for (std::int32_t slot = 0; slot < slot_count; ++slot)
        ring.owners.push_back(
            random() % 8 == 0
                ? core::nobody
                : agents + static_cast<std::int32_t>(random() % static_cast<unsigned>(workers)));
    return ring;
}

std::vector<Slot> slots_of(const Ring &ring) {
    std::vector<Slot> slots;
    for (std::int32_t i = 0; i < slot_count; ++i) {
        const core::Range range = core::slot_range(i, slot_count);
        const std::int32_t owner = ring.owners[static_cast<std::size_t>(i)];
        slots.push_back({i, range.first.value(), range.last.value(),
                         owner == core::nobody
                             ? std::nullopt
                             : std::optional(ring.nodes[static_cast<std::size_t>(owner)].name)});
    }
    return slots;
}

/// The node that a proposal gives a slot to.
std::string granted(const std::optional<Proposal> &proposal, const Slot &slot) {
    if (proposal)
        for (const Grant &grant : proposal->grants)
            if (grant.range_start <= slot.range_start && slot.range_end <= grant.range_end)
                return grant.node;
    return {};
}

TEST(HandOver, GivesTheSlotsOfALeaverToTheNextWindowsOwners) {
    Random random(1);
    for (int round = 0; round < rounds; ++round) {
        const Ring ring = draw(random, 0);
        const std::vector<std::int32_t> successors = successors_of(ring);
        const std::vector<Slot> slots = slots_of(ring);
        const auto window = propose(Instant{}, ring.strategy, ring.nodes, slots);
        for (std::size_t slot = 0; slot < slots.size(); ++slot) {
            const std::int32_t successor = successors[slot];
            if (ring.owners[slot] != ring.leaver) {
                EXPECT_EQ(successor, core::nobody) << "round " << round << ", slot " << slot;
            } else {
                EXPECT_EQ(successor == core::nobody
                              ? std::string()
                              : ring.nodes[static_cast<std::size_t>(successor)].name,
                          granted(window, slots[slot]))
                    << "round " << round << ", slot " << slot;
            }
        }
    }
}

TEST(HandOver, GivesTheSlotsOfAnAgentsWorkerToTheAgentsChoice) {
    Random random(2);
    for (int round = 0; round < rounds; ++round) {
        const Ring ring = draw(random, 3);
        const Node &leaver = ring.nodes[static_cast<std::size_t>(ring.leaver)];
        if (!leaver.agent)
            continue;
        std::vector<Slot> part;
        for (const Slot &slot : slots_of(ring)) {
            const std::int32_t owner = ring.owners[static_cast<std::size_t>(slot.number)];
            if (owner != core::nobody &&
                ring.nodes[static_cast<std::size_t>(owner)].agent == leaver.agent)
                part.push_back(slot);
        }
        const auto window = propose_part(Instant{}, ring.strategy, *leaver.agent, ring.nodes, part);
        if (!window)
            continue;
        const std::vector<std::int32_t> successors = successors_of(ring);
        for (const Slot &slot : part) {
            const auto i = static_cast<std::size_t>(slot.number);
            if (ring.owners[i] == ring.leaver) {
                ASSERT_NE(successors[i], core::nobody) << "round " << round;
                EXPECT_EQ(ring.nodes[static_cast<std::size_t>(successors[i])].name,
                          granted(window, slot))
                    << "round " << round << ", slot " << i;
            }
        }
    }
}

TEST(HandOver, GivesEverySlotToAWorkerThatIsWellWhereThereIsOne) {
    Random random(3);
    for (int round = 0; round < rounds; ++round) {
        const Ring ring = draw(random, 3);
        const core::RingNode &leaver = ring.views[static_cast<std::size_t>(ring.leaver)];
        bool is_frozen = false, has_peer = false, has_other = false;
        for (const core::RingNode &node : ring.views) {
            const bool agent_is_frozen =
                !node.agent.empty() &&
                std::ranges::find(ring.views, node.agent, &core::RingNode::name)->frozen;
            is_frozen = is_frozen || (node.name == leaver.agent && node.frozen);
            if (node.kind != NodeKind::worker || !core::takes_slots(node))
                continue;
            has_peer = has_peer || (!leaver.agent.empty() && node.agent == leaver.agent);
            has_other = has_other || !agent_is_frozen;
        }
        const bool has_successor = has_peer || (has_other && !is_frozen);
        const std::vector<std::int32_t> successors = successors_of(ring);
        for (std::size_t slot = 0; slot < ring.owners.size(); ++slot) {
            if (ring.owners[slot] != ring.leaver)
                continue;
            ASSERT_EQ(successors[slot] != core::nobody, has_successor) << "round " << round;
            if (successors[slot] != core::nobody) {
                const auto &node = ring.views[static_cast<std::size_t>(successors[slot])];
                EXPECT_TRUE(node.kind == NodeKind::worker && core::takes_slots(node));
            }
        }
    }
}

} // namespace
} // namespace stacksaga::coordinator
