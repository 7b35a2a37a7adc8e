// Which agent a new worker is assigned to, and whose a slot is for a hand-over. The assignments are
// tested in test/unit/coordinator.
#include "core/ring/hand_over.hpp"

#include <gtest/gtest.h>

#include <array>

namespace stacksaga::core {
namespace {

TEST(ChooseAgent, PrefersTheFormerThenTheOneWithFewestWorkersThenTheName) {
    std::array agents{AgentChoice{"c", NodeState::active, 1},
                      AgentChoice{"a", NodeState::active, 2},
                      AgentChoice{"b", NodeState::active, 1}};
    EXPECT_EQ(choose_agent(agents, "a"), 1);
    EXPECT_EQ(choose_agent(agents, ""), 2);
    EXPECT_EQ(choose_agent(agents, "unknown"), 2);
}

TEST(ChooseAgent, LeavesOutThoseThatAreNotActive) {
    std::array agents{AgentChoice{"a", NodeState::suspected, 0},
                      AgentChoice{"b", NodeState::draining, 0},
                      AgentChoice{"c", NodeState::active, 9}};
    EXPECT_EQ(choose_agent(agents, "a"), 2);
    agents[2].state = NodeState::dead;
    EXPECT_EQ(choose_agent(agents, "c"), nobody);
    EXPECT_EQ(choose_agent({}, ""), nobody);
}

TEST(PlannedOwner, ASlotThatAWindowGivesToAnotherNodeIsThatNodesAlready) {
    const auto worker = [](std::string_view name, NodeState state) {
        return RingNode{.name = name, .kind = NodeKind::worker, .state = state};
    };
    const std::array nodes{worker("a", NodeState::active), worker("b", NodeState::draining),
                           worker("c", NodeState::active), worker("d", NodeState::dead)};
    constexpr std::int32_t a = 0, leaver = 1, c = 2, dead = 3;
    EXPECT_EQ(planned_owner(nodes, leaver, leaver, c), c);
    EXPECT_EQ(planned_owner(nodes, leaver, a, leaver), a);
    EXPECT_EQ(planned_owner(nodes, leaver, dead, leaver), leaver);
    EXPECT_EQ(planned_owner(nodes, leaver, leaver, dead), leaver);
    EXPECT_EQ(planned_owner(nodes, leaver, dead, nobody), nobody);
    EXPECT_EQ(planned_owner(nodes, leaver, nobody, nobody), nobody);
}

} // namespace
} // namespace stacksaga::core
