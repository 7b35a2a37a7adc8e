// Goal: a saga goes forward as its definition says, whatever an attempt comes to. Method: services
// and workers act on a saga in memory; what the tables would hold is compared after each event.
#include "saga_fixture.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

// ----------------------------------------------------------------------------------------- stages

TEST(SagaForward, StagesFollowEachOtherAndStepsOfOneRunTogether) {
    TestSaga s("a sql | b queue, c queue, d sql | e sql");
    s.start();
    EXPECT_EQ(s.text(), "pending: a due");
    s.run("a");
    EXPECT_EQ(s.text(), "running: b due, c due, d due");
    s.serve("c");
    s.run("d");
    s.claim("b");
    EXPECT_EQ(s.text(), "running: b claimed");
    s.complete("b");
    EXPECT_EQ(s.text(), "running: e due");
    s.run("e");
    EXPECT_EQ(s.text(), "completed");
    EXPECT_EQ(s.markers(), "a b c d e");
}

TEST(SagaForward, TheFirstStageIsDueWhenTheSagaMayBegin) {
    TestSaga s("a queue, t timer, w signal; deadline");
    s.start(100);
    EXPECT_EQ(s.text(), "pending: deadline in 1000, a in 100, t in 110, w in 100");
    EXPECT_FALSE(s.claim("a"));
    s.pass(100);
    EXPECT_TRUE(s.claim("a"));
}

TEST(SagaForward, TheOrderOfStepsIsThatOfTheirStages) {
    TestSaga s("a sql | b sql");
    const Step &a = s.step("a"), &b = s.step("b");
    std::vector<Step> swapped{b, a};
    swapped[0].no = 1;
    swapped[1].no = 2;
    Definition definition = s.plan.definition();
    definition.steps = swapped;
    s.state().definition = &definition;
    open_first_stage(s.state(), s.now);
    EXPECT_FALSE(find_work(s.state(), 1, Direction::act));
    EXPECT_TRUE(find_work(s.state(), 2, Direction::act));
}

// -------------------------------------------------------------------------------------- outcomes

/// A step that fails, with what decides about it as words of its definition.
struct Attempt {
    FailedAttempt failed;
    std::string plan() const {
        std::string words = failed.attempts_left ? "x queue" : "x queue once";
        words += failed.has_verify ? " verify" : "";
        words += failed.irreversible ? " pivot" : "";
        return "a queue undo | " + words + " | z queue";
    }
};

std::string_view expected_of(Outcome outcome) {
    switch (outcome) {
    case Outcome::retry:
        return "running: x in 5";
    case Outcome::verify:
        return "running: x verifying";
    case Outcome::give_up:
        return "compensating: ~a due";
    case Outcome::park:
        return "parked for x: x waits";
    }
    return "";
}

TEST(SagaForward, EveryFailedActionComesToWhatTheRulesSay) {
    for (const FailureClass c :
         {FailureClass::retryable, FailureClass::non_retryable, FailureClass::unknown})
        for (int bits = 0; bits < 8; ++bits) {
            const Attempt attempt{{.direction = Direction::act,
                                   .failure_class = c,
                                   .attempts_left = (bits & 1) != 0,
                                   .has_verify = (bits & 2) != 0,
                                   .irreversible = (bits & 4) != 0,
                                   .in_doubt = c == FailureClass::unknown,
                                   .on_failure = OnFailure::compensate}};
            SCOPED_TRACE(attempt.plan() + " " + std::string(name_of(c)));
            TestSaga s(attempt.plan());
            s.start();
            s.serve("a");
            s.claim("x");
            s.fail("x", c);
            EXPECT_EQ(s.text(), expected_of(decide(attempt.failed)));
            ASSERT_EQ(s.tables.failures.size(), 1U);
            EXPECT_EQ(s.tables.failures[0].failure_class, c);
            EXPECT_EQ(s.tables.failures[0].outcome_known, c != FailureClass::unknown);
        }
}

TEST(SagaForward, EveryFailedCompensationComesToWhatTheRulesSay) {
    for (const FailureClass c :
         {FailureClass::retryable, FailureClass::non_retryable, FailureClass::unknown})
        for (const bool left : {true, false}) {
            TestSaga s("a queue undo | b queue");
            s.start();
            s.serve("a");
            s.refuse("b");
            if (!left) {
                s.claim("a", Direction::compensate);
                s.fail("a", FailureClass::retryable, Direction::compensate);
                s.pass(5);
            }
            s.claim("a", Direction::compensate);
            s.fail("a", c, Direction::compensate);
            const Outcome outcome = decide({.direction = Direction::compensate,
                                            .failure_class = c,
                                            .attempts_left = left,
                                            .has_verify = false,
                                            .irreversible = false,
                                            .in_doubt = false,
                                            .on_failure = OnFailure::compensate});
            EXPECT_EQ(s.text(),
                      outcome == Outcome::retry ? "compensating: ~a in 5" : "parked~ for ~a");
        }
}

TEST(SagaForward, AKnownFailureOfAnIrreversibleStepParksNothing) {
    TestSaga s("p queue pivot once verify");
    s.start();
    s.claim("p");
    s.fail("p", FailureClass::retryable);
    EXPECT_EQ(s.text(), "failed");
}

// --------------------------------------------------------------------------------------- retries

TEST(SagaForward, APauseCountsFromTheFailureAndOnlyTheNamedAttemptsCount) {
    TestSaga s("a queue");
    s.start();
    for (int attempt = 1; attempt < 3; ++attempt) {
        EXPECT_TRUE(s.claim("a"));
        EXPECT_EQ(s.work("a")->attempt, attempt);
        s.pass(7);
        s.fail("a", FailureClass::retryable);
        EXPECT_EQ(s.text(), "running: a in 5");
        s.pass(5);
    }
    s.claim("a");
    s.fail("a", FailureClass::retryable);
    EXPECT_EQ(s.text(), "failed");
    EXPECT_EQ(s.tables.retries, 2);
    EXPECT_EQ(s.tables.failures.size(), 3U);
}

TEST(SagaForward, APauseCountsFromWhenTheLeaseRanOutHoweverLateThatIsSeen) {
    TestSaga s("a queue");
    s.start();
    s.claim("a");
    s.pass(32);
    s.run("a");
    EXPECT_EQ(s.text(), "running: a in 3");
}

TEST(SagaForward, AServiceMaySayWhenItIsTriedAgain) {
    TestSaga s("a queue");
    s.start();
    s.claim("a");
    s.decide([&](SagaState &saga) {
        step_failed(saga, s.step("a"), *s.work("a"),
                    {.failure_class = FailureClass::retryable,
                     .outcome_known = true,
                     .error = "busy",
                     .retry_after_us = 90 * second,
                     .since = saga.now},
                    0.5);
    });
    EXPECT_EQ(s.text(), "running: a in 90");
}

TEST(SagaForward, WhatIsRandomChoosesWithinTheJitter) {
    for (const double random : {0.0, 0.5, 1.0}) {
        TestSaga s("a queue");
        Step step = s.step("a");
        step.policy.jitter = 0.2;
        step.policy.max_interval_us = 100 * second;
        Definition definition = s.plan.definition();
        definition.steps = {&step, 1};
        s.start();
        s.claim("a");
        s.state().definition = &definition;
        step_failed(s.state(), step, *s.work("a"),
                    {.failure_class = FailureClass::retryable,
                     .outcome_known = true,
                     .error = "busy",
                     .since = s.now},
                    random);
        EXPECT_EQ(s.work("a")->due_at, s.now + delay_before(2, step.policy, random));
    }
}

// ------------------------------------------------------------------------------- unknown outcomes

TEST(SagaForward, ALeaseThatRanOutLeavesAnUnknownOutcome) {
    TestSaga s("a queue");
    s.start();
    s.claim("a");
    const std::optional<std::int64_t> lease = s.work("a")->lease;
    s.expire("a");
    EXPECT_EQ(s.text(), "running: a in 5");
    EXPECT_EQ(s.tables.failures[0].error, "the lease ran out");
    EXPECT_FALSE(s.tables.failures[0].outcome_known);
    EXPECT_EQ(s.work("a")->lease, lease); // so a late answer counts
    s.complete("a");
    EXPECT_EQ(s.text(), "completed");
}

TEST(SagaForward, ALeaseThatIsSettledLateIsDueThenAndNotBefore) {
    TestSaga s("a queue");
    s.start();
    s.claim("a");
    const std::int64_t ran_out = s.work("a")->due_at;
    s.pass(3600);
    s.run("a");
    EXPECT_GT(s.now, ran_out + 5 * second);
    EXPECT_EQ(s.work("a")->due_at, s.now);
}

TEST(SagaForward, AnAttemptThatTakesTooLongIsSettledWhileItsLeaseHolds) {
    TestSaga s("a queue; deadline");
    s.start();
    s.claim("a");
    const Work claimed = *s.work("a");
    s.decide([&](SagaState &saga) {
        EXPECT_EQ(extend_claim(saga, s.step("a"), claimed, 3600 * second), s.now + 60 * second);
    });
    s.pass(60);
    s.run("a");
    EXPECT_EQ(s.tables.failures[0].error, "the attempt took longer than the step's timeout");
}

TEST(SagaForward, AMessageHasNoLeaseButTheTimeout) {
    TestSaga s("a message");
    s.start();
    s.run("a");
    EXPECT_EQ(s.text(), "running: a claimed");
    s.expire("a");
    EXPECT_EQ(s.now, 1060 * second);
    EXPECT_EQ(s.tables.failures[0].error, "the attempt took longer than the step's timeout");
    EXPECT_EQ(s.text(), "running: a in 5");
}

TEST(SagaForward, WhoClaimsSettlesTheLeaseBefore) {
    TestSaga s("a queue eager");
    s.start();
    s.claim("a");
    EXPECT_FALSE(s.claim("a"));
    s.pass(30);
    EXPECT_TRUE(s.claim("a"));
    EXPECT_EQ(s.work("a")->attempt, 2);
    EXPECT_EQ(s.tables.failures.size(), 1U);
}

TEST(SagaForward, VerifyDecidesAnUnknownOutcome) {
    const auto ask = [](std::string_view plan, std::string_view answer) {
        TestSaga s{std::string(plan)};
        s.start();
        s.serve("a");
        s.claim("x");
        s.expire("x");
        EXPECT_EQ(s.text(), "running: x verifying");
        s.verify("x", answer);
        return s.text();
    };
    EXPECT_EQ(ask("a queue undo | x queue verify", "done"), "completed");
    EXPECT_EQ(ask("a queue undo | x queue verify", "not_done"), "running: x in 5");
    EXPECT_EQ(ask("a queue undo | x queue verify", "unknown"), "running: x in 5");
    EXPECT_EQ(ask("a queue undo | x queue verify once", "not_done"), "compensating: ~a due");
    EXPECT_EQ(ask("a queue undo | x queue verify once", "unknown"), "compensating: ~a due");
    EXPECT_EQ(ask("a queue undo | x queue verify pivot", "unknown"), "parked for x: x waits");
    EXPECT_EQ(ask("a queue undo | x queue verify pivot", "not_done"), "running: x verifying in 5");
}

TEST(SagaForward, WhatVerifySaysSettlesTheEarlierAttempts) {
    TestSaga s("a queue verify undo started twice");
    s.start();
    s.claim("a");
    s.expire("a");
    s.verify("a", "unknown");
    s.pass(5);
    s.claim("a");
    s.expire("a");
    s.verify("a", "never");
    EXPECT_EQ(s.text(), "failed"); // and there is nothing to undo
    for (const StoredFailure &f : s.tables.failures)
        EXPECT_TRUE(f.outcome_known);
    EXPECT_EQ(s.tables.failures[1].error, "the lease ran out; never");
}

// -------------------------------------------------------------------------------------- fallbacks

TEST(SagaForward, AFallbackIsTriedWithAttemptsOfItsOwn) {
    TestSaga s("a queue undo | x queue fallback twice");
    s.start();
    s.serve("a");
    s.refuse("x");
    EXPECT_EQ(s.text(), "running: x fallback due");
    EXPECT_EQ(s.work("x")->attempt, 1);
    const Step &x = s.step("x");
    EXPECT_FALSE(find_claimable(s.state(), x, Direction::act, "work", 0.5));
    EXPECT_TRUE(find_claimable(s.state(), x, Direction::act, "other", 0.5));
    s.claim("x");
    s.fail("x", FailureClass::retryable);
    EXPECT_EQ(s.text(), "running: x fallback in 5");
    s.pass(5);
    s.claim("x");
    s.fail("x", FailureClass::retryable);
    EXPECT_EQ(s.text(), "compensating: ~a due");
}

TEST(SagaForward, NoFallbackIsTriedForWhatMayHaveHappened) {
    TestSaga s("a queue undo | x queue fallback twice");
    s.start();
    s.serve("a");
    s.claim("x");
    s.expire("x");
    s.pass(5);
    s.claim("x");
    s.fail("x", FailureClass::retryable);
    EXPECT_EQ(s.text(), "compensating: ~a due");

    TestSaga t("a queue undo | x queue fallback twice");
    t.start();
    t.serve("a");
    t.claim("x");
    t.expire("x");
    t.pass(5);
    t.refuse("x"); // which says nothing of the attempt before
    EXPECT_EQ(t.text(), "compensating: ~a due");
}

TEST(SagaForward, AFallbackIsVerifiedToo) {
    TestSaga s("a queue undo | x queue fallback verify once");
    s.start();
    s.serve("a");
    s.refuse("x");
    s.claim("x");
    s.expire("x");
    EXPECT_EQ(s.text(), "running: x fallback verifying");
}

// ------------------------------------------------------------------------------------------ others

TEST(SagaForward, AStepThatCannotRunParksTheSaga) {
    TestSaga s("a sql");
    s.start();
    s.run_is_unusable("a");
    EXPECT_EQ(s.text(), "parked for a: a waits");
    EXPECT_EQ(s.tables.saga.error, "the function is gone");
    EXPECT_EQ(s.tables.statuses.size(), 1U); // pending to parked
    s.retry();
    EXPECT_EQ(s.text(), "running: a due");
    EXPECT_EQ(s.work("a")->attempt, 1);
    EXPECT_EQ(s.work("a")->attempt_base, 1);
}

TEST(SagaForward, AnAttemptShouldBeOverByItsTimeoutOrTheDeadline) {
    TestSaga s("a sql undo; deadline");
    const Step &a = s.step("a");
    EXPECT_EQ(attempt_deadline(s.state(), a, Direction::act), s.now + 60 * second);
    s.pass(970);
    EXPECT_EQ(attempt_deadline(s.state(), a, Direction::act), s.now + 30 * second);
    EXPECT_EQ(attempt_deadline(s.state(), a, Direction::compensate), s.now + 60 * second);
    s.pass(30);
    EXPECT_EQ(attempt_deadline(s.state(), a, Direction::act), s.now + 60 * second);
}

// ----------------------------------------------------------------------------------- run ahead

TEST(SagaForward, AnAttemptThatDiedAheadCountsWhenItsTurnComes) {
    TestSaga s("a sql, b sql | c sql, d sql twice");
    s.start();
    EXPECT_TRUE(s.die_ahead("d"));
    EXPECT_EQ(s.text(), "pending: a due, b due, d ahead");
    EXPECT_FALSE(s.die_ahead("d")) << "charged twice";
    EXPECT_FALSE(s.die_ahead("a")) << "its turn has come";
    s.suspend();
    s.resume();
    s.run("a");
    s.run("b");
    EXPECT_EQ(s.text(), "running: c due, d in 5");
    ASSERT_EQ(s.tables.failures.size(), 1U);
    EXPECT_EQ(s.tables.failures[0].attempt, 1);
    EXPECT_EQ(s.tables.failures[0].error, crash_error);
    EXPECT_FALSE(s.die_ahead("d")) << "it was tried since";
    s.pass(5);
    s.run_fails("d", FailureClass::retryable);
    EXPECT_EQ(s.tables.saga.direction, Direction::compensate) << "it had its two attempts";
}

TEST(SagaForward, AnAttemptThatDiedAheadMayHaveBeenTheOnlyOne) {
    TestSaga s("a sql undo | b sql once, c sql");
    s.start();
    s.die_ahead("b");
    s.run("a");
    EXPECT_EQ(s.text(), "compensating: ~a due");
    EXPECT_EQ(s.tables.saga.error, crash_error);
    TestSaga f("a sql | b sql once fallback");
    f.start();
    f.die_ahead("b");
    f.run("a");
    EXPECT_EQ(f.text(), "running: b fallback due");
}

TEST(SagaForward, ACompensationThatDiedAheadIsChargedInItsTurn) {
    TestSaga s("a sql undo | b sql undo | c sql");
    s.start();
    s.run("a");
    s.run("b");
    s.run_fails("c", FailureClass::non_retryable);
    s.die_ahead("a", Direction::compensate);
    EXPECT_EQ(s.text(), "compensating: ~a ahead, ~b due");
    s.run("b", Direction::compensate);
    EXPECT_EQ(s.text(), "compensating: ~a in 5");
    s.pass(5);
    s.run("a", Direction::compensate);
    EXPECT_EQ(s.text(), "failed");
}

TEST(SagaForward, ADeathAheadIsForgottenWhereTheTurnNeverComes) {
    TestSaga s("a sql | b sql");
    s.start();
    s.die_ahead("b");
    s.die_ahead("b", Direction::compensate);
    s.cancel();
    EXPECT_EQ(s.text(), "failed");
    EXPECT_FALSE(s.die_ahead("b"));
}

} // namespace
} // namespace stacksaga::core
