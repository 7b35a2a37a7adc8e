#include "core/ring/node_state.hpp"

#include <gtest/gtest.h>

#include <set>

namespace {

using namespace stacksaga::core;

constexpr NodeTiming timing{.suspect_after = 15, .dead_after = 30};

TEST(NodeState, FollowsFromSilence) {
    EXPECT_EQ(node_state(0, false, timing), NodeState::active);
    EXPECT_EQ(node_state(14, false, timing), NodeState::active);
    EXPECT_EQ(node_state(15, false, timing), NodeState::suspected);
    EXPECT_EQ(node_state(29, false, timing), NodeState::suspected);
    EXPECT_EQ(node_state(30, false, timing), NodeState::dead);
    EXPECT_EQ(node_state(299, false, timing), NodeState::dead);
    EXPECT_EQ(node_state(300, false, timing), NodeState::removed);
    EXPECT_EQ(node_state(29, true, timing), NodeState::draining);
    EXPECT_EQ(node_state(30, true, timing), NodeState::dead);
}

// Silence only grows between beats, a beat ends it, and draining is never taken back: every step of
// that kind is an edge of the table.
TEST(NodeState, MovesAlongTheTable) {
    for (int silent = 0; silent < 310; ++silent)
        for (bool draining : {false, true}) {
            const NodeState state = node_state(silent, draining, timing);
            EXPECT_TRUE(may_change(state, node_state(silent + 1, draining, timing))) << silent;
            if (state == NodeState::removed)
                continue;
            EXPECT_TRUE(may_change(state, node_state(0, draining, timing))) << silent;
            EXPECT_TRUE(may_change(state, node_state(silent, true, timing))) << silent;
            EXPECT_TRUE(may_change(state, NodeState::removed)) << silent;
        }
}

TEST(NodeState, EveryStateIsReachedAndEveryEdgeHasASentence) {
    std::set<NodeState> reached{NodeState::active};
    for (const NodeTransition &t : node_transitions) {
        reached.insert(t.to);
        EXPECT_FALSE(t.sentence.empty());
        EXPECT_NE(t.from, NodeState::removed);
    }
    EXPECT_EQ(reached.size(), node_state_names.size());
}

TEST(NodeState, ClockSetBackDoesNotKeepTheDeadAlive) {
    EXPECT_EQ(age_of(100, 130), 30);
    EXPECT_EQ(age_of(130, 100), 30);
    EXPECT_EQ(age_of(INT64_MIN, INT64_MAX), INT64_MAX);
    EXPECT_EQ(node_state(age_of(3600, 0), false, timing), NodeState::removed);
}

TEST(NodeState, BeatingWithoutProgressIsSuspectedAndNeverDead) {
    const NodeTiming thirty{15, 30};
    EXPECT_EQ(hung_for(10, 10), 0);
    EXPECT_EQ(node_state(0, false, thirty, hung_for(24, 10)), NodeState::active);
    for (const NodeTiming &each : {thirty, NodeTiming{15, 15}})
        for (const std::int64_t untold : {std::int64_t{25}, std::int64_t{40}, INT64_MAX})
            EXPECT_EQ(node_state(0, false, each, hung_for(untold, 10)), NodeState::suspected);
    EXPECT_EQ(node_state(0, true, thirty, hung_for(INT64_MAX, 10)), NodeState::draining);
    EXPECT_EQ(node_state(30, false, thirty, hung_for(INT64_MAX, 10)), NodeState::dead);
}

TEST(NodeState, SlotsOfAnUnresponsiveAgentWaitForTheDelay) {
    const NodeTiming thirty{15, 30};
    EXPECT_FALSE(is_frozen(NodeState::active, 0, thirty, 100));
    EXPECT_TRUE(is_frozen(NodeState::suspected, 15, thirty, 100));
    EXPECT_TRUE(is_frozen(NodeState::dead, 114, thirty, 100));
    EXPECT_FALSE(is_frozen(NodeState::dead, 115, thirty, 100));
    EXPECT_FALSE(is_frozen(NodeState::suspected, 15, thirty, 0));
    EXPECT_FALSE(is_frozen(NodeState::draining, 15, thirty, 100));
}

} // namespace
