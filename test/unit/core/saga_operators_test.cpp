// Goal: an operator's word and a late answer do what they say, once, whatever the saga waits for.
// Method: each action where it is allowed and where it is not, with the reasons given.
#include "saga_fixture.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

constexpr Direction undo = Direction::compensate;

// ------------------------------------------------------------------------------ suspend and resume

TEST(SagaSuspend, HoldsAllWorkAndGivesItBackAsItWas) {
    TestSaga s("a queue, b queue, t timer, w signal endless; deadline");
    s.start();
    s.claim("a");
    s.claim("b");
    s.fail("b", FailureClass::retryable);
    const std::string before = s.text();
    const std::string rows = s.tables.dump();
    EXPECT_EQ(before, "running: deadline in 1000, a claimed, b in 5, t in 10, w waits");
    s.suspend();
    EXPECT_EQ(s.text(), "suspended: deadline held, a claimed held, b held, t held, w held");
    EXPECT_FALSE(s.claim("b"));
    s.resume();
    EXPECT_EQ(s.text(), before);
    EXPECT_EQ(s.tables.dump(), rows);
}

TEST(SagaSuspend, AClaimMadeBeforeIsAnsweredAndExtended) {
    TestSaga s("a queue | b queue");
    s.start();
    s.claim("a");
    s.suspend();
    s.decide([&](SagaState &saga) {
        EXPECT_TRUE(is_extensible(saga, s.step("a"), *s.work("a")));
        extend_claim(saga, s.step("a"), *s.work("a"), 50 * second);
    });
    EXPECT_EQ(s.text(), "suspended: a claimed held");
    EXPECT_EQ(s.work("a")->resume_at, s.now + 50 * second);
    s.complete("a");
    EXPECT_EQ(s.text(), "suspended");
    s.resume();
    EXPECT_EQ(s.text(), "running: b due");
}

TEST(SagaSuspend, AFailureMeanwhileIsTriedAgainAfterwards) {
    TestSaga s("a queue");
    s.start();
    s.claim("a");
    s.suspend();
    s.fail("a", FailureClass::retryable);
    EXPECT_EQ(s.text(), "suspended: a held");
    s.resume();
    EXPECT_EQ(s.text(), "running: a in 5");
}

TEST(SagaSuspend, WorkThatIsAddedMeanwhileIsHeldToo) {
    TestSaga s("x queue fallback");
    s.start();
    s.claim("x");
    s.suspend();
    s.fail("x", FailureClass::non_retryable);
    EXPECT_EQ(s.text(), "suspended: x fallback held");
    s.resume();
    EXPECT_EQ(s.text(), "running: x fallback due");
}

TEST(SagaResume, KnowsWhetherAnAttemptHasBegun) {
    TestSaga s("a queue");
    s.start();
    s.suspend();
    s.resume();
    EXPECT_EQ(s.text(), "pending: a due");
    s.claim("a");
    s.suspend();
    s.resume();
    EXPECT_EQ(s.text(), "running: a claimed");
}

TEST(SagaResume, CompletesASagaWhoseLastStepWasAnsweredMeanwhile) {
    TestSaga s("a queue");
    s.start();
    s.claim("a");
    s.suspend();
    s.complete("a");
    EXPECT_EQ(s.text(), "suspended");
    s.resume();
    EXPECT_EQ(s.text(), "completed");
    EXPECT_EQ(s.tables.statuses.size(), 4U); // running, suspended, running, completed
}

TEST(SagaResume, WithADelayMakesWhatIsDueEarlierDueThen) {
    TestSaga s("a queue, b queue, t timer, w signal; deadline");
    s.start();
    s.claim("a");
    s.claim("b");
    s.fail("b", FailureClass::retryable);
    s.suspend();
    s.resume(7 * second);
    EXPECT_EQ(s.text(), "running: deadline in 1000, a claimed, b in 7, t in 10, w in 60");
    s.suspend();
    s.resume(50 * second);
    EXPECT_EQ(s.text(), "running: deadline in 1000, a claimed, b in 50, t in 50, w in 60");
}

TEST(SagaResume, WithADelayMovesNeitherTheDeadlineNorALeaseNorTheWaitForASignal) {
    TestSaga s("a queue, w signal; deadline");
    s.start();
    s.claim("a");
    s.suspend();
    s.resume(5000 * second);
    EXPECT_EQ(s.text(), "running: deadline in 1000, a claimed, w in 60");
}

TEST(SagaResume, WithADelayDelaysTheStageThatItOpens) {
    TestSaga s("a queue | b queue");
    s.start();
    s.claim("a");
    s.suspend();
    s.complete("a");
    s.resume(7 * second);
    EXPECT_EQ(s.text(), "running: b in 7");
}

TEST(SagaResume, WithoutADelayOverdueStepsKeepTheirInstant) {
    TestSaga s("a queue");
    s.start();
    const std::int64_t due_at = s.work("a")->due_at;
    s.suspend();
    s.pass(20);
    s.resume();
    EXPECT_EQ(s.work("a")->due_at, due_at);
}

// ----------------------------------------------------------------------------------------- cancel

TEST(SagaCancel, SaysWhyItIsRefused) {
    TestSaga s("a queue | p queue pivot | z queue");
    s.start();
    s.serve("a");
    s.claim("p");
    s.expire("p");
    s.complete("p");
    EXPECT_EQ(s.cancel(), "refused, past an irreversible step");
    s.serve("z");
    EXPECT_EQ(s.cancel(), "refused");
    EXPECT_EQ(s.retry(), "refused, not parked");
    EXPECT_EQ(s.resume(), "refused, not suspended");
    EXPECT_EQ(s.suspend(), "refused");
}

TEST(SagaCancel, ASuspendedSagaCompensatesAtOnce) {
    TestSaga s("a queue undo | b queue, c queue");
    s.start();
    s.serve("a");
    s.claim("b");
    s.suspend();
    const std::size_t before = s.tables.statuses.size();
    s.cancel();
    EXPECT_EQ(s.text(), "compensating: b claimed");
    EXPECT_EQ(s.tables.statuses.size(), before + 1);
    EXPECT_EQ(s.tables.saga.error, "cancelled");
}

TEST(SagaCancel, ASagaParkedForAStepThatCannotRunCompensates) {
    TestSaga s("a queue undo | b sql");
    s.start();
    s.serve("a");
    s.run_is_unusable("b");
    EXPECT_EQ(s.text(), "parked for b: b waits");
    EXPECT_EQ(s.cancel(), "");
    EXPECT_EQ(s.text(), "compensating: ~a due");
    EXPECT_EQ(s.tables.saga.error, "cancelled");
}

// ------------------------------------------------------------------------------------------ retry

TEST(SagaRetry, CountsAttemptsAnewAndALateAnswerStillCounts) {
    TestSaga s("p queue pivot | q queue once | z queue");
    s.start();
    s.serve("p");
    s.claim("q");
    s.expire("q");
    EXPECT_EQ(s.text(), "parked for q");
    s.retry();
    EXPECT_EQ(s.text(), "running: q due");
    const Work row = *s.work("q");
    EXPECT_EQ(row.attempt, 1);
    EXPECT_EQ(row.attempt_base, 1);
    EXPECT_TRUE(row.lease);
    s.complete("q");
    EXPECT_EQ(s.text(), "running: z due");
}

TEST(SagaRetry, WithADelayTheAttemptsAreDueThen) {
    TestSaga s("p queue pivot | q queue, r queue | z queue");
    s.start();
    s.serve("p");
    s.refuse("q");
    EXPECT_EQ(s.text(), "parked for q: r held");
    s.retry(7 * second);
    EXPECT_EQ(s.text(), "running: q in 7, r in 7");
}

TEST(SagaRetry, WithADelayTheCompensationIsDueThen) {
    TestSaga s("a queue undo | b queue");
    s.start();
    s.serve("a");
    s.refuse("b");
    s.refuse("a", undo);
    EXPECT_EQ(s.text(), "parked~ for ~a");
    s.retry(7 * second);
    EXPECT_EQ(s.text(), "compensating: ~a in 7");
}

TEST(SagaRetry, MakesEveryStepOfTheStageDueThatIsNotDone) {
    TestSaga s("o queue pivot | p queue, q queue, r queue, b queue | z queue");
    s.start();
    s.serve("o");
    s.claim("q");
    s.claim("r");
    s.refuse("p");
    s.fail("q", FailureClass::non_retryable);
    s.complete("r");
    EXPECT_EQ(s.text(), "parked for p: b held");
    s.retry();
    EXPECT_EQ(s.text(), "running: p due, q due, b due");
    EXPECT_EQ(s.work("q")->attempt, 1);
    EXPECT_EQ(s.work("q")->attempt_base, 1);
}

// ---------------------------------------------------------------------------------------- resolve

TEST(SagaResolve, DoneIsAnAttemptOfItsOwn) {
    TestSaga s("a queue, b queue, c queue | z queue");
    s.start();
    s.claim("c");
    s.fail("c", FailureClass::retryable);
    for (const char *step : {"a", "b", "c"})
        s.resolve(step, ResolveOutcome::done);
    EXPECT_EQ(s.text(), "running: z due");
    ASSERT_EQ(s.tables.effects.size(), 3U);
    EXPECT_EQ(s.tables.effects[0].attempt, 1);
    EXPECT_EQ(s.tables.effects[1].attempt, 1);
    EXPECT_EQ(s.tables.effects[2].attempt, 2);
    for (const Effect &e : s.tables.effects) {
        EXPECT_EQ(e.worker, "operator");
        EXPECT_EQ(e.output.bits, 99U);
    }
}

TEST(SagaResolve, NeverSettlesTheEarlierAttemptsToo) {
    TestSaga s("a queue undo started | z queue");
    s.start();
    s.claim("a");
    s.expire("a");
    s.pass(5);
    s.claim("a");
    s.expire("a");
    s.resolve("a", ResolveOutcome::never_done);
    EXPECT_EQ(s.text(), "failed"); // with nothing to undo
    ASSERT_EQ(s.tables.failures.size(), 2U);
    EXPECT_TRUE(s.tables.failures[0].outcome_known);
    EXPECT_TRUE(s.tables.failures[1].outcome_known);
    EXPECT_EQ(s.tables.failures[1].error, "the lease ran out; the operator says no");
}

TEST(SagaResolve, ACompensationThatWasNotDoneIsStillToBeDone) {
    TestSaga s("a queue undo | b queue");
    s.start();
    s.serve("a");
    s.refuse("b");
    s.resolve("a", ResolveOutcome::not_done);
    EXPECT_EQ(s.text(), "compensating: ~a in 5");
    EXPECT_TRUE(s.resolve("a", ResolveOutcome::never_done).starts_with("refused"));
    s.resolve("a", ResolveOutcome::done);
    EXPECT_EQ(s.text(), "failed");
    EXPECT_EQ(s.markers(), "a ~a");
}

TEST(SagaResolve, OnlyWhatHasBegunAndIsNotSettled) {
    TestSaga s("a queue undo | b queue | c queue");
    s.start();
    s.serve("a");
    const std::string refused = "refused, and the step neither runs nor waits in this direction";
    EXPECT_EQ(s.resolve("a", ResolveOutcome::done), refused);
    EXPECT_EQ(s.resolve("c", ResolveOutcome::done), refused);
    EXPECT_EQ(s.resolve("b", ResolveOutcome::done), "");
    EXPECT_EQ(s.text(), "running: c due");
}

TEST(SagaResolve, AStepThatIsASagaIsSettledThere) {
    const std::string refused = "refused, and the step is a saga of its own";
    TestSaga s("p queue pivot | c child fallback");
    s.start();
    s.serve("p");
    EXPECT_EQ(s.resolve("c", ResolveOutcome::done), refused);
    s.run("c");
    EXPECT_EQ(s.resolve("c", ResolveOutcome::done), refused);
    s.child_ends("c", Status::failed);
    EXPECT_EQ(s.text(), "running: c fallback due");
    EXPECT_EQ(s.resolve("c", ResolveOutcome::done), "");
    EXPECT_EQ(s.text(), "completed");
}

TEST(SagaResolve, AChildThatStandsIsSettledThereAlsoWhenTheSagaIsParked) {
    for (const bool stands : {true, false}) {
        TestSaga s("p queue pivot | c child once");
        s.start();
        s.serve("p");
        s.run("c");
        s.expire("c");
        EXPECT_EQ(s.text(), "parked for c");
        if (!stands)
            s.child_ends("c", Status::failed);
        EXPECT_EQ(s.resolve("c", ResolveOutcome::done),
                  stands ? "refused, and the step is a saga of its own" : "");
    }
}

// ----------------------------------------------------------------------------------- late answers

TEST(SagaLateAnswer, UnparksTheSaga) {
    TestSaga s("a queue undo | p queue pivot, b queue | z queue");
    s.start();
    s.serve("a");
    s.claim("p");
    s.claim("b");
    s.expire("p");
    s.complete("b");
    EXPECT_EQ(s.text(), "parked for p: p waits");
    s.complete("p");
    EXPECT_EQ(s.text(), "running: z due");
    EXPECT_FALSE(s.tables.saga.error);
}

TEST(SagaLateAnswer, OfAFailureGoesOnByTheRules) {
    const auto answer = [](FailureClass c) {
        TestSaga s("a queue undo | p queue pivot, b queue");
        s.start();
        s.serve("a");
        s.claim("p");
        s.expire("p");
        s.fail("p", c);
        EXPECT_EQ(s.tables.failures.size(), 1U); // the answer replaces the silence
        return s.text();
    };
    EXPECT_EQ(answer(FailureClass::retryable), "running: p in 5, b due");
    EXPECT_EQ(answer(FailureClass::non_retryable), "compensating: ~a due");
    EXPECT_EQ(answer(FailureClass::unknown), "parked for p: p waits, b held");
}

TEST(SagaLateAnswer, CompensatesWhenASiblingHasFailedMeanwhile) {
    TestSaga s("a queue undo | p queue pivot, b queue");
    s.start();
    s.serve("a");
    s.claim("p");
    s.claim("b");
    s.expire("p");
    s.fail("b", FailureClass::non_retryable);
    EXPECT_EQ(s.text(), "parked for p: p waits");
    EXPECT_EQ(s.tables.saga.compensation_requested, CompensationRequest::failure);
    s.fail("p", FailureClass::retryable);
    EXPECT_EQ(s.text(), "compensating: ~a due");
    EXPECT_EQ(s.tables.saga.failed_step, s.step("b").no);
    EXPECT_EQ(s.tables.saga.error, "non_retryable");
}

TEST(SagaLateAnswer, LeavesTheSagaParkedForAnotherUnknownStep) {
    TestSaga s("p queue pivot, q queue pivot | z queue");
    s.start();
    s.claim("p");
    s.claim("q");
    s.expire("p");
    s.expire("q");
    EXPECT_EQ(s.text(), "parked for p: p waits, q waits");
    s.complete("p");
    EXPECT_EQ(s.text(), "parked for q: q waits");
    s.complete("q");
    EXPECT_EQ(s.text(), "running: z due");
}

TEST(SagaLateAnswer, OfAnotherStepDoesNotUnpark) {
    TestSaga s("p queue pivot, b queue | z queue");
    s.start();
    s.claim("p");
    s.claim("b");
    s.expire("p");
    s.complete("b");
    EXPECT_EQ(s.text(), "parked for p: p waits");
    s.complete("p");
    EXPECT_EQ(s.text(), "running: z due");
}

// ---------------------------------------------------------------------------------------- answers

TEST(SagaAnswer, IsTakenOnceUnderTheLeaseThatHoldsTheStep) {
    TestSaga s("a queue | b queue");
    s.start();
    s.claim("a");
    const Step &a = s.step("a");
    const std::int64_t lease = *s.work("a")->lease;
    EXPECT_EQ(judge_completion(s.state(), a, lease, {}).outcome, AnswerOutcome::accept);
    EXPECT_EQ(judge_completion(s.state(), a, lease + 1, {}).outcome, AnswerOutcome::lease_lost);
    EXPECT_EQ(judge_completion(s.state(), a, -1, {}).outcome, AnswerOutcome::lease_lost);
    EXPECT_FALSE(find_leased(s.state(), a, lease + 1));
    s.complete("a");
    EXPECT_EQ(
        judge_completion(s.state(), a, lease, EarlierCompletion{true, false, SettledBy::answer})
            .outcome,
        AnswerOutcome::accepted_before);
    EXPECT_EQ(
        judge_completion(s.state(), a, lease, EarlierCompletion{false, false, SettledBy::answer})
            .outcome,
        AnswerOutcome::other_output);
    EXPECT_EQ(judge_completion(s.state(), a, lease, {}).outcome, AnswerOutcome::lease_lost);
}

TEST(SagaAnswer, ALeaseIsLostToTheNextClaim) {
    TestSaga s("a queue eager");
    s.start();
    s.claim("a");
    const std::int64_t lease = *s.work("a")->lease;
    s.expire("a");
    EXPECT_TRUE(find_leased(s.state(), s.step("a"), lease));
    s.claim("a");
    EXPECT_FALSE(find_leased(s.state(), s.step("a"), lease));
}

TEST(SagaAnswer, AClaimIsReturnedAsItIsStored) {
    TestSaga s("a queue");
    s.start();
    s.claim("a");
    s.expire("a");
    s.pass(5);
    const Step &a = s.step("a");
    const Work due = *find_claimable(s.state(), a, Direction::act, "work", 0.5);
    const Work claimed =
        begin_claim(s.state(), a, due, make_lease(2, Direction::act, 1), s.now + 90 * second, "me");
    EXPECT_EQ(claimed.attempt, 2);
    EXPECT_EQ(claimed.started_at, s.now);
    EXPECT_EQ(claimed.lease_until, s.now + 90 * second);
    EXPECT_EQ(claimed.due_at, s.now + 60 * second); // the timeout comes first
    EXPECT_EQ(claimed.worker, "me");
}

TEST(SagaAnswer, AClaimIsExtendedUpToTheTimeoutAndNeverShortened) {
    TestSaga s("a queue");
    s.start();
    s.claim("a");
    const Step &a = s.step("a");
    const std::int64_t begun = s.now;
    const auto extend = [&](std::int64_t seconds) {
        return (extend_claim(s.state(), a, *s.work("a"), seconds * second) - begun) / second;
    };
    EXPECT_EQ(extend(1), 30);
    s.pass(20);
    EXPECT_EQ(extend(30), 50);
    EXPECT_EQ(extend(3600), 60);
    s.pass(40);
    EXPECT_FALSE(is_extensible(s.state(), a, *s.work("a")));
    s.expire("a");
    EXPECT_FALSE(is_extensible(s.state(), a, *s.work("a")));
}

} // namespace
} // namespace stacksaga::core
