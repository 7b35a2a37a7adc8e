// Goal: the tables of the state machines mean what the promises need. Method: every pair of states
// and every kind of failed attempt, not samples.
#include "core/saga/saga_state.hpp"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace stacksaga::core {
namespace {

constexpr std::array all_statuses{Status::pending,   Status::running, Status::compensating,
                                  Status::completed, Status::failed,  Status::parked,
                                  Status::suspended};

TEST(SagaState, NamesRoundTrip) {
    for (Status s : all_statuses)
        EXPECT_EQ(status_of(name_of(s)), s);
    EXPECT_EQ(status_of("paused"), std::nullopt);
    EXPECT_EQ(direction_of("compensate"), Direction::compensate);
    EXPECT_EQ(failure_class_of("non_retryable"), FailureClass::non_retryable);
}

TEST(SagaState, FinalStatesAreFinal) {
    for (Status from : {Status::completed, Status::failed})
        for (Status to : all_statuses)
            for (Direction before : {Direction::act, Direction::compensate})
                for (Direction after : {Direction::act, Direction::compensate})
                    EXPECT_EQ(may_change(from, before, to, after), from == to && before == after);
}

TEST(SagaState, CompensationNeverTurnsForwardAgain) {
    for (Status from : all_statuses)
        for (Status to : all_statuses)
            EXPECT_FALSE(may_change(from, Direction::compensate, to, Direction::act));
    for (Status from : all_statuses)
        EXPECT_FALSE(
            may_change(from, Direction::compensate, Status::running, Direction::compensate) &&
            from != Status::running);
}

TEST(SagaState, DirectionFollowsTheStatus) {
    for (const SagaTransition &t : saga_transitions) {
        if (t.to == Status::running || t.to == Status::completed || t.to == Status::pending) {
            EXPECT_EQ(t.direction, Direction::act) << t.sentence;
        }
        if (t.to == Status::compensating || t.to == Status::failed) {
            EXPECT_EQ(t.direction, Direction::compensate) << t.sentence;
        }
        EXPECT_FALSE(t.sentence.empty());
    }
}

TEST(SagaState, EveryStatusIsReachableAndAnyButAFinalOneIsLeft) {
    std::set<Status> reached{Status::pending};
    for (size_t round = 0; round < all_statuses.size(); ++round)
        for (const SagaTransition &t : saga_transitions)
            if (reached.contains(t.from))
                reached.insert(t.to);
    EXPECT_EQ(reached.size(), all_statuses.size());
    for (Status s : all_statuses) {
        bool left = false;
        for (const SagaTransition &t : saga_transitions)
            left = left || (t.from == s && !t.of_child);
        EXPECT_EQ(left, !is_final(s)) << name_of(s);
    }
}

TEST(SagaState, ASagaThatRunsInOneTransactionNeedsNotBeSeenRunning) {
    for (const SagaTransition &t : saga_transitions)
        if (t.from == Status::running) {
            EXPECT_TRUE(may_change(Status::pending, Direction::act, t.to, t.direction))
                << t.sentence;
        }
}

TEST(SagaState, NoTransitionIsListedTwice) {
    std::set<std::tuple<Status, Status, Direction>> seen;
    for (const SagaTransition &t : saga_transitions)
        EXPECT_TRUE(seen.emplace(t.from, t.to, t.direction).second) << t.sentence;
}

TEST(OutcomeRules, EveryRuleDecidesSomething) {
    std::set<const OutcomeRule *> used;
    for (Direction d : {Direction::act, Direction::compensate})
        for (FailureClass c :
             {FailureClass::retryable, FailureClass::non_retryable, FailureClass::unknown})
            for (bool left : {false, true})
                for (bool verify : {false, true})
                    for (bool irreversible : {false, true})
                        for (bool in_doubt : {false, true})
                            for (OnFailure on_failure : {OnFailure::compensate, OnFailure::park})
                                used.insert(find_rule(
                                    {d, c, left, verify, irreversible, in_doubt, on_failure}));
    EXPECT_EQ(used.size(), outcome_rules.size());
}

TEST(OutcomeRules, ACompensationIsNeverGivenUp) {
    for (FailureClass c :
         {FailureClass::retryable, FailureClass::non_retryable, FailureClass::unknown})
        for (bool left : {false, true}) {
            Outcome outcome = decide(
                {Direction::compensate, c, left, false, false, false, OnFailure::compensate});
            EXPECT_TRUE(outcome == Outcome::retry || outcome == Outcome::park);
        }
}

TEST(OutcomeRules, WhatCannotBeUndoneIsNotTriedAgainBlindly) {
    for (bool left : {false, true})
        for (FailureClass c :
             {FailureClass::retryable, FailureClass::non_retryable, FailureClass::unknown})
            EXPECT_EQ(decide({Direction::act, c, left, false, true, true, OnFailure::compensate}),
                      Outcome::park);
}

TEST(Lease, RisesWithTheAttemptAndKeepsItsDirection) {
    int64_t previous = 0;
    for (int32_t attempt = 1; attempt < 10000; ++attempt)
        for (Direction d : {Direction::act, Direction::compensate}) {
            int64_t lease = make_lease(attempt, d, 0x123456789abcdefULL * attempt);
            EXPECT_EQ(lease_direction(lease), d);
            EXPECT_GT(lease, previous);
            previous = lease;
        }
    EXPECT_GT(make_lease(2147483647, Direction::compensate, ~uint64_t{0}), 0);
}

} // namespace
} // namespace stacksaga::core
