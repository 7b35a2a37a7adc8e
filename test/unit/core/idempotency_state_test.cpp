#include "core/dedupe/idempotency_state.hpp"

#include <gtest/gtest.h>

#include <set>

namespace {

using namespace stacksaga::core;

TEST(IdempotencyState, FollowsFromTheRowAndTheTime) {
    EXPECT_EQ(idempotency_state({}, {}, false, 10), IdempotencyState::absent);
    EXPECT_EQ(idempotency_state(11, {}, false, 10), IdempotencyState::in_progress);
    EXPECT_EQ(idempotency_state(10, {}, false, 10), IdempotencyState::abandoned);
    EXPECT_EQ(idempotency_state(5, 11, false, 10), IdempotencyState::completed);
    EXPECT_EQ(idempotency_state(5, 11, true, 10), IdempotencyState::forgotten);
    EXPECT_EQ(idempotency_state(50, 10, false, 10), IdempotencyState::expired);
    EXPECT_EQ(idempotency_state(50, 10, true, 10), IdempotencyState::expired);
}

TEST(IdempotencyState, EveryPairHasOneRowAndASentence) {
    std::set<std::pair<IdempotencyState, IdempotencyEvent>> pairs;
    for (const IdempotencyTransition &t : idempotency_transitions) {
        EXPECT_TRUE(pairs.insert({t.from, t.event}).second) << t.sentence;
        EXPECT_FALSE(t.sentence.empty());
        EXPECT_EQ(find_transition(t.from, t.event), &t);
    }
}

// The promise of the table: whatever happens, an intent is begun again only after it was released,
// its lease ran out, or its retention passed.
TEST(IdempotencyState, BeginsAgainOnlyWhereNoAttemptHoldsTheKey) {
    for (const IdempotencyTransition &t : idempotency_transitions) {
        if (t.event == IdempotencyEvent::begin &&
            (t.reply == IdempotencyReply::begun || t.reply == IdempotencyReply::resumed)) {
            EXPECT_NE(t.from, IdempotencyState::in_progress);
            EXPECT_NE(t.from, IdempotencyState::completed);
            EXPECT_NE(t.from, IdempotencyState::forgotten);
        }
        if (t.reply != IdempotencyReply::done && t.event != IdempotencyEvent::begin &&
            t.reply != IdempotencyReply::none) {
            EXPECT_EQ(t.to, t.from) << t.sentence;
        }
    }
}

TEST(IdempotencyState, EveryStateIsReachedAndLeft) {
    std::set<IdempotencyState> reached, left;
    for (const IdempotencyTransition &t : idempotency_transitions)
        if (t.from != t.to) {
            reached.insert(t.to);
            left.insert(t.from);
        }
    EXPECT_EQ(reached.size(), idempotency_state_names.size());
    EXPECT_EQ(left.size(), idempotency_state_names.size());
}

} // namespace
