// Goal: what was done is undone, in order, and what cannot be undone stops the compensation.
// Method: sagas that fail, are cancelled or answered late at each place.
#include "saga_fixture.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

constexpr Direction undo = Direction::compensate;

/// The statuses that were written since `first`.
std::string statuses_of(const TestSaga &s, std::size_t first = 0) {
    std::string out;
    for (std::size_t i = first; i < s.tables.statuses.size(); ++i)
        out += (out.empty() ? "" : " ") + std::string(name_of(s.tables.statuses[i].status));
    return out;
}

// ------------------------------------------------------------------------------------------ order

TEST(SagaCompensation, StagesAreUndoneFromTheLastOneStepsOfOneTogether) {
    TestSaga s("a queue undo | b sql undo, c queue undo, d sql | e sql | f queue");
    s.start();
    s.serve("a");
    s.run("b");
    s.serve("c");
    s.run("d");
    s.run("e");
    s.refuse("f");
    EXPECT_EQ(s.text(), "compensating: ~b due, ~c due");
    s.run("b", undo);
    EXPECT_EQ(s.text(), "compensating: ~c due");
    s.serve("c", undo);
    EXPECT_EQ(s.text(), "compensating: ~a due");
    s.serve("a", undo);
    EXPECT_EQ(s.text(), "failed");
    EXPECT_EQ(s.markers(), "a ~a b ~b c ~c d e");
    EXPECT_EQ(s.tables.saga.failed_step, s.step("f").no);
    EXPECT_EQ(s.tables.saga.error, "non_retryable");
}

TEST(SagaCompensation, WithNothingToUndoTheSagaFailsAtOnce) {
    TestSaga s("a sql | b sql");
    s.start();
    s.run("a");
    const std::size_t before = s.tables.statuses.size();
    s.run_fails("b", FailureClass::non_retryable);
    EXPECT_EQ(s.text(), "failed");
    EXPECT_EQ(statuses_of(s, before), "failed");
}

TEST(SagaCompensation, OnlyAStepThatAsksForItIsUndoneWhenItsOutcomeIsUnknown) {
    for (const bool started : {false, true}) {
        TestSaga s(started ? "a queue undo once started" : "a queue undo once");
        s.start();
        s.claim("a");
        s.expire("a");
        EXPECT_EQ(s.text(), started ? "compensating: ~a due" : "parked~ for a");
    }
}

// --------------------------------------------------------------------------------------- siblings

TEST(SagaCompensation, WaitsForClaimedStepsAndCancelsTheOthers) {
    TestSaga s("a queue undo, b queue undo, c queue, v queue undo verify, w queue; deadline");
    s.start();
    s.claim("a");
    s.claim("b");
    s.claim("v");
    s.decide([&](SagaState &saga) {
        step_failed(saga, s.step("v"), *s.work("v"),
                    {.failure_class = FailureClass::unknown,
                     .outcome_known = false,
                     .error = "the lease ran out",
                     .since = saga.now},
                    0.5);
    });
    s.refuse("w");
    EXPECT_EQ(s.text(), "compensating: a claimed, b claimed, v verifying");
    s.complete("b");
    s.fail("a", FailureClass::retryable); // and it is not tried again
    EXPECT_EQ(s.text(), "compensating: v verifying");
    s.verify("v", "done");
    EXPECT_EQ(s.text(), "compensating: ~b due, ~v due");
}

TEST(SagaCompensation, AStepInDoubtIsVerifiedWhenItsTurnToBeUndoneComes) {
    TestSaga s("a queue undo verify | b sql");
    s.start();
    s.claim("a");
    s.cancel();
    s.expire("a");
    EXPECT_EQ(s.text(), "compensating: a verifying");
    s.verify("a", "not_done");
    EXPECT_EQ(s.text(), "parked~ for a: a waits");
    s.retry();
    s.verify("a", "never");
    EXPECT_EQ(s.text(), "failed");

    TestSaga t("a queue undo started verify | b sql"); // there is no need to know
    t.start();
    t.claim("a");
    t.cancel();
    t.expire("a");
    EXPECT_EQ(t.text(), "compensating: ~a due");
}

TEST(SagaCompensation, AnAnswerOfAnActionThatIsUndoneIsRefused) {
    TestSaga s("a queue undo started, b queue");
    s.start();
    s.claim("a");
    const std::int64_t lease = *s.work("a")->lease;
    s.expire("a");
    s.refuse("b");
    const Step &a = s.step("a");
    EXPECT_FALSE(s.work("a"));
    EXPECT_EQ(judge_completion(s.state(), a, lease, std::nullopt).outcome,
              AnswerOutcome::being_undone);
    EXPECT_EQ(judge_completion(s.state(), a, make_lease(1, undo, 1), std::nullopt).outcome,
              AnswerOutcome::lease_lost);
}

// ------------------------------------------------------------------------------------- the pivot

TEST(SagaCompensation, PastAnIrreversibleStepTheSagaParks) {
    TestSaga s("a queue undo | p queue pivot | z queue");
    s.start();
    s.serve("a");
    s.serve("p");
    s.refuse("z");
    EXPECT_EQ(s.text(), "parked for z");
    s.retry();
    EXPECT_EQ(s.text(), "running: z due");
    EXPECT_FALSE(s.tables.saga.error);
    EXPECT_FALSE(s.tables.saga.failed_step);
    s.serve("z");
    EXPECT_EQ(s.text(), "completed");
}

TEST(SagaCompensation, AnUnknownIrreversibleStepParksTheSagaThatAnotherOneFailed) {
    TestSaga s("a queue undo | p queue pivot, b queue");
    s.start();
    s.serve("a");
    s.claim("p");
    s.claim("b");
    s.fail("p", FailureClass::unknown);
    EXPECT_EQ(s.text(), "parked for p: p waits, b claimed");
    s.fail("b", FailureClass::non_retryable);
    EXPECT_EQ(s.text(), "parked for p: p waits");
    s.resolve("p", ResolveOutcome::done); // b has failed meanwhile, and p cannot be undone
    EXPECT_EQ(s.text(), "parked for b");

    TestSaga t("a queue undo | p queue pivot, b queue");
    t.start();
    t.serve("a");
    t.claim("p");
    t.claim("b");
    t.fail("p", FailureClass::unknown);
    t.fail("b", FailureClass::non_retryable);
    t.resolve("p", ResolveOutcome::never_done);
    EXPECT_EQ(t.text(), "compensating: ~a due");
}

TEST(SagaCompensation, AnIrreversibleStepInFlightIsWaitedFor) {
    const auto answer = [](void (*how)(TestSaga &)) {
        TestSaga s("a queue undo | p queue pivot, b queue");
        s.start();
        s.serve("a");
        s.claim("p");
        s.refuse("b");
        EXPECT_EQ(s.text(), "running: p claimed");
        EXPECT_EQ(s.tables.saga.compensation_requested, CompensationRequest::failure);
        how(s);
        return s.text();
    };
    EXPECT_EQ(answer([](TestSaga &s) { s.fail("p", FailureClass::non_retryable); }),
              "compensating: ~a due");
    EXPECT_EQ(answer([](TestSaga &s) { s.complete("p"); }), "parked for b");
    EXPECT_EQ(answer([](TestSaga &s) { s.fail("p", FailureClass::unknown); }),
              "parked for p: p waits");
}

TEST(SagaCompensation, AnEarlierAttemptThatMayHaveHappenedCountsForAnIrreversibleStep) {
    TestSaga s("a queue undo | p queue pivot, b queue");
    s.start();
    s.serve("a");
    s.claim("p");
    s.expire("p");
    EXPECT_EQ(s.text(), "parked for p: p waits, b held");
    EXPECT_EQ(s.retry(), "refused, since the outcome of an irreversible step is not known");
    s.cancel();
    EXPECT_EQ(s.text(), "parked for p: p waits, b held");
    s.fail("p", FailureClass::retryable); // late, and so nothing is in doubt
    EXPECT_EQ(s.text(), "compensating: ~a due");
}

TEST(SagaCompensation, AfterAnOperatorsWordOnTheLastIrreversibleStepItGoesOn) {
    TestSaga s("a queue undo | p queue pivot, q queue pivot, b queue");
    s.start();
    s.serve("a");
    s.claim("p");
    s.claim("q");
    s.refuse("b");
    s.fail("p", FailureClass::unknown);
    EXPECT_EQ(s.text(), "parked for p: p waits, q claimed");
    s.fail("q", FailureClass::unknown);
    EXPECT_EQ(s.text(), "parked for p: p waits, q waits"); // the first stays
    s.resolve("p", ResolveOutcome::never_done);
    EXPECT_EQ(s.text(), "parked for q: q waits");
    s.resolve("q", ResolveOutcome::never_done);
    EXPECT_EQ(s.text(), "compensating: ~a due");
}

// --------------------------------------------------------------------- compensations that fail

TEST(SagaCompensation, AFailedCompensationParksTheSagaAndTheOthersAreWithdrawn) {
    TestSaga s("a queue undo | b queue undo, c queue undo | d queue");
    s.start();
    for (const char *step : {"a", "b", "c"})
        s.serve(step);
    s.refuse("d");
    s.refuse("b", undo);
    EXPECT_EQ(s.text(), "parked~ for ~b: ~c held");
    EXPECT_EQ(s.tables.saga.error, "non_retryable");
    EXPECT_EQ(s.tables.saga.failed_step, s.step("d").no);
    s.retry();
    EXPECT_EQ(s.text(), "compensating: ~b due, ~c due");
    s.serve("c", undo);
    EXPECT_EQ(s.work("b", undo)->attempt, 1);
    EXPECT_EQ(s.work("b", undo)->attempt_base, 1);
    s.serve("b", undo);
    EXPECT_EQ(s.text(), "compensating: ~a due");
}

TEST(SagaCompensation, OrItGoesOnAndParksAtTheEnd) {
    TestSaga s("a queue undo | b queue undo, c queue undo | d queue; continue");
    s.start();
    for (const char *step : {"a", "b", "c"})
        s.serve(step);
    s.refuse("d");
    s.refuse("b", undo);
    EXPECT_EQ(s.text(), "compensating: ~c due");
    s.serve("c", undo);
    EXPECT_EQ(s.text(), "compensating: ~a due");
    s.refuse("a", undo);
    EXPECT_EQ(s.text(), "parked~ for ~b");
    s.retry();
    EXPECT_EQ(s.text(), "compensating: ~a due, ~b due");
    s.serve("a", undo);
    s.serve("b", undo);
    EXPECT_EQ(s.text(), "failed");
}

TEST(SagaCompensation, AnOperatorResolvesTheLastCompensation) {
    TestSaga s("a queue undo | b queue undo | d queue");
    s.start();
    s.serve("a");
    s.serve("b");
    s.refuse("d");
    s.refuse("b", undo);
    s.resolve("b", ResolveOutcome::not_done);
    EXPECT_EQ(s.text(), "parked~ for ~b"); // as before
    s.resolve("b", ResolveOutcome::done);
    EXPECT_EQ(s.text(), "compensating: ~a due");
    s.refuse("a", undo);
    const std::size_t before = s.tables.statuses.size();
    s.resolve("a", ResolveOutcome::done);
    EXPECT_EQ(statuses_of(s, before), "failed");
    EXPECT_EQ(s.markers(), "a ~a b ~b");
}

TEST(SagaCompensation, OneThatCannotRunParksTheSaga) {
    TestSaga s("a sql undo | b queue");
    s.start();
    s.run("a");
    s.refuse("b");
    s.run_is_unusable("a", undo);
    EXPECT_EQ(s.text(), "parked~ for ~a");
    EXPECT_EQ(s.tables.saga.error, "non_retryable"); // why it compensates
    s.retry();
    s.run("a", undo);
    EXPECT_EQ(s.text(), "failed");
}

// ------------------------------------------------------------------------------------- suspended

TEST(SagaCompensation, ASuspendedSagaCompensatesWhenItIsResumed) {
    TestSaga s("a queue undo | b queue, c queue");
    s.start();
    s.serve("a");
    s.claim("b");
    s.claim("c");
    s.suspend();
    s.fail("b", FailureClass::non_retryable);
    EXPECT_EQ(s.text(), "suspended~: c claimed held");
    s.complete("c");
    EXPECT_EQ(s.text(), "suspended~");
    s.resume();
    EXPECT_EQ(s.text(), "compensating: ~a due");
    EXPECT_EQ(s.tables.saga.error, "non_retryable");
}

TEST(SagaCompensation, ASuspendedSagaWithNothingToUndoFailsWhenItIsResumed) {
    TestSaga s("a queue");
    s.start();
    s.claim("a");
    s.suspend();
    s.fail("a", FailureClass::non_retryable);
    EXPECT_EQ(s.text(), "suspended~");
    s.resume();
    EXPECT_EQ(s.text(), "failed");
}

TEST(SagaCompensation, AParkDoesNotEndASuspension) {
    TestSaga s("p queue pivot, b queue, c queue");
    s.start();
    s.claim("p");
    s.claim("b");
    s.suspend();
    s.fail("p", FailureClass::unknown);
    EXPECT_EQ(s.text(), "parked for p: p held, b claimed held, c held");
    s.resume();
    EXPECT_EQ(s.text(), "parked for p: p waits, b claimed, c held");
    s.complete("b");
    s.resolve("p", ResolveOutcome::done);
    EXPECT_EQ(s.text(), "running: c due");

    TestSaga t("p queue pivot, b queue");
    t.start();
    t.claim("p");
    t.suspend();
    t.fail("p", FailureClass::unknown);
    t.resolve("p", ResolveOutcome::done);
    EXPECT_EQ(t.text(), "suspended: b held"); // as before the park
}

} // namespace
} // namespace stacksaga::core
