// Sagas that stop at a failure or at their deadline: on_failure => 'park'.
#include "saga_fixture.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

constexpr FailureClass non_retryable = FailureClass::non_retryable;

/// The lease of the step's claim.
std::int64_t lease_of(const TestSaga &s, std::string_view name) {
    return *s.work(name)->lease;
}

bool asks_to_cancel(TestSaga &s) {
    return is_cancel_requested(s.state(), Direction::act);
}

// --------------------------------------------------------------------------------------- failures

TEST(SagaPark, TheStageEndsOnlyWhenEachOfItsStepsIsDone) {
    TestSaga s("a queue parks once, b queue | c queue");
    s.start();
    s.claim("b");
    s.refuse("a");
    EXPECT_EQ(s.text(), "parked for a: b claimed");
    s.complete("b");
    EXPECT_EQ(s.text(), "parked for a");
    s.retry();
    EXPECT_EQ(s.text(), "running: a due");
    s.serve("a");
    EXPECT_EQ(s.text(), "running: c due");
}

TEST(SagaPark, ASecondFailureChangesNothing) {
    TestSaga s("z queue undo | a queue parks once, b queue parks");
    s.start();
    s.serve("z");
    s.claim("b");
    s.refuse("a");
    s.fail("b", non_retryable);
    EXPECT_EQ(s.text(), "parked for a");
    s.retry();
    EXPECT_EQ(s.text(), "running: a due, b due");
}

TEST(SagaPark, ASecondFailureThatSaysCompensateBeginsCompensation) {
    TestSaga s("z queue undo | a queue undo parks once, b queue once");
    s.start();
    s.serve("z");
    s.claim("b");
    s.refuse("a");
    s.fail("b", non_retryable);
    EXPECT_EQ(s.text(), "compensating: ~z due");
}

TEST(SagaPark, WhatIsTriedAgainHasTheWholePolicy) {
    TestSaga s("a queue parks twice eager");
    s.start();
    for (int round = 0; round < 2; ++round) {
        s.claim("a");
        s.fail("a", FailureClass::retryable);
        EXPECT_EQ(s.text(), "running: a due");
        s.claim("a");
        s.fail("a", FailureClass::retryable);
        EXPECT_EQ(s.text(), "parked for a");
        s.retry();
    }
}

TEST(SagaPark, ThePivotItselfParksWithItsSiblingInFlight) {
    TestSaga s("z queue undo | p queue pivot parks, b queue parks");
    s.start();
    s.serve("z");
    s.claim("b");
    s.refuse("p");
    EXPECT_EQ(s.text(), "parked for p: b claimed");
    s.complete("b");
    EXPECT_EQ(s.retry(), "");
    s.serve("p");
    EXPECT_EQ(s.text(), "completed");
}

TEST(SagaPark, ASiblingOfAPivotInFlightParksAtOnce) {
    TestSaga s("z queue undo | p queue pivot, b queue parks");
    s.start();
    s.serve("z");
    s.claim("p");
    s.refuse("b");
    EXPECT_EQ(s.text(), "parked for b: p claimed");
    EXPECT_FALSE(s.state().row.compensation_requested);
    s.complete("p");
    EXPECT_EQ(s.text(), "parked for b"); // past the pivot
    EXPECT_EQ(s.compensate(), "refused, past an irreversible step");
    s.retry();
    s.serve("b");
    EXPECT_EQ(s.text(), "completed");
}

TEST(SagaPark, AFallbackIsTriedFirst) {
    TestSaga s("z queue undo | a queue undo parks once fallback");
    s.start();
    s.serve("z");
    s.refuse("a");
    EXPECT_EQ(s.text(), "running: a fallback due");
    s.refuse("a");
    EXPECT_EQ(s.text(), "parked for a");
    s.retry(); // begins with the action again
    EXPECT_FALSE(s.work("a")->falling_back);
}

TEST(SagaPark, AFallbackInDoubtIsTriedAgainUnderItsKey) {
    TestSaga s("z queue undo | a queue undo parks once fallback");
    s.start();
    s.serve("z");
    s.refuse("a");
    s.claim("a");
    s.expire("a");
    EXPECT_EQ(s.text(), "parked for a");
    s.retry();
    EXPECT_TRUE(s.work("a")->falling_back);
}

TEST(SagaPark, AStepInDoubtParksAndIsCompensatedByAPerson) {
    TestSaga s("z queue undo | a queue undo started parks once");
    s.start();
    s.serve("z");
    s.claim("a");
    s.expire("a");
    EXPECT_EQ(s.text(), "parked for a");
    EXPECT_EQ(s.compensate(), "");
    EXPECT_EQ(s.text(), "compensating: ~a due");
}

TEST(SagaPark, ASignalThatDidNotComeInTimeGetsANewWait) {
    TestSaga s("s signal parks");
    s.start();
    s.pass(60);
    s.run("s");
    EXPECT_EQ(s.text(), "parked for s");
    s.pass(600);
    s.retry();
    EXPECT_EQ(s.work("s")->due_at, s.now + 60 * second);
    s.signal("s");
    EXPECT_EQ(s.text(), "completed");
}

TEST(SagaPark, NeverLeavesItParkedAndNothingInDoubt) {
    TestSaga s("a queue undo started parks once | b queue");
    s.start();
    s.claim("a");
    s.expire("a");
    EXPECT_TRUE(is_in_doubt(s.state(), 1));
    EXPECT_EQ(s.resolve("a", ResolveOutcome::never_done), "");
    EXPECT_EQ(s.text(), "parked for a");
    EXPECT_FALSE(is_in_doubt(s.state(), 1));
    EXPECT_EQ(s.resolve("a", ResolveOutcome::done), "");
    EXPECT_EQ(s.text(), "running: b due");
}

TEST(SagaPark, ALateAnswerLeavesItParkedForTheOtherStep) {
    TestSaga s("a queue parks once, b queue parks once | c queue");
    s.start();
    s.claim("a");
    s.claim("b");
    const std::int64_t a = lease_of(s, "a"), b = lease_of(s, "b");
    s.expire("a");
    s.expire("b");
    EXPECT_EQ(s.text(), "parked for a");
    s.complete_late(s.step("a"), a);
    EXPECT_EQ(s.text(), "parked for b");
    s.complete_late(s.step("b"), b);
    EXPECT_EQ(s.text(), "running: c due");
}

// ------------------------------------------------------------------------------------ suspensions

TEST(SagaPark, ASuspendedSagaParksAndIsSuspendedAgain) {
    TestSaga s("z queue undo | a queue undo parks once");
    s.start();
    s.serve("z");
    s.claim("a");
    s.suspend();
    s.fail("a", non_retryable);
    EXPECT_EQ(s.text(), "parked for a");
    s.retry();
    EXPECT_EQ(s.text(), "suspended: a held");
    s.resume();
    EXPECT_EQ(s.text(), "running: a due");
}

TEST(SagaPark, CompensateEndsTheSuspensionOfAParkedSaga) {
    TestSaga s("z queue undo | a queue undo parks once");
    s.start();
    s.serve("z");
    s.claim("a");
    s.suspend();
    s.fail("a", non_retryable);
    s.compensate();
    EXPECT_EQ(s.text(), "compensating: ~z due");
    EXPECT_FALSE(s.tables.saga.suspended_at);
}

// -------------------------------------------------------------------------------------- deadlines

TEST(SagaPark, AtItsDeadlineForTheFirstOpenStep) {
    TestSaga s("z queue undo | a queue undo, b queue undo; parks deadline");
    s.start();
    s.serve("z");
    s.serve("a");
    s.pass(1000);
    s.run_deadline();
    EXPECT_EQ(s.text(), "parked for b: b held");
    EXPECT_FALSE(asks_to_cancel(s)); // nothing is undone
    s.pass(500);
    EXPECT_EQ(s.retry(), "");
    EXPECT_EQ(s.text(), "running: deadline in 1000, b due");
    EXPECT_EQ(s.tables.deadline_at, s.now + 1000 * second);
    EXPECT_FALSE(s.tables.saga.error);
}

TEST(SagaPark, AtItsDeadlineBeforeItHasBegun) {
    TestSaga s("a queue undo; parks deadline");
    s.start();
    s.pass(1000);
    s.run_deadline();
    EXPECT_EQ(s.text(), "parked for a: a held");
    EXPECT_EQ(s.compensate(), "");
    EXPECT_EQ(s.text(), "failed");
}

TEST(SagaPark, AtItsDeadlineAnswersCountAndTheSagaStands) {
    TestSaga s("a queue, b queue | c queue; parks deadline");
    s.start();
    s.claim("a");
    s.pass(20);
    s.state().deadline_at = s.now; // before the lease ends
    s.run_deadline();
    EXPECT_EQ(s.text(), "parked for a: a claimed, b held");
    s.complete("a");
    EXPECT_EQ(s.text(), "parked for b: b held");
}

TEST(SagaPark, AtItsDeadlineItCompletesWithItsLastAnswer) {
    TestSaga s("a queue; parks deadline", Writes::each_and_holds);
    s.start();
    s.claim("a");
    s.state().deadline_at = s.now;
    s.run_deadline();
    EXPECT_EQ(s.text(), "parked for a: a claimed");
    s.complete("a");
    EXPECT_EQ(s.text(), "completed");
    EXPECT_FALSE(s.tables.saga.error);
}

TEST(SagaPark, ALateAnswerEndsTheParkOfADeadline) {
    TestSaga s("a queue | b queue; parks deadline");
    s.start();
    s.claim("a");
    const std::int64_t lease = lease_of(s, "a");
    s.expire("a");
    s.pass(1000);
    s.run_deadline();
    EXPECT_EQ(s.text(), "parked for a: a held");
    s.complete_late(s.step("a"), lease);
    EXPECT_EQ(s.text(), "running: deadline in 1000, b due");
    EXPECT_EQ(s.tables.deadline_at, s.now + 1000 * second);
}

TEST(SagaPark, APersonEndsTheParkOfADeadline) {
    TestSaga s("a queue | b queue; parks deadline");
    s.start();
    s.pass(1000);
    s.run_deadline();
    EXPECT_EQ(s.resolve("a", ResolveOutcome::done), "");
    EXPECT_EQ(s.text(), "running: deadline in 1000, b due");
    EXPECT_EQ(s.tables.deadline_at, s.now + 1000 * second);
}

TEST(SagaPark, AFailureThatSaysCompensateIsMoreThanADeadline) {
    TestSaga s("z queue undo | a queue, b queue; parks deadline", Writes::each_and_holds);
    s.start();
    s.serve("z");
    s.claim("b");
    s.state().deadline_at = s.now;
    s.run_deadline();
    EXPECT_EQ(s.text(), "parked for a: a held, b claimed");
    s.fail("b", non_retryable);
    EXPECT_EQ(s.text(), "compensating: ~z due");
}

TEST(SagaPark, TheDeadlineWaitsForAPivotInFlight) {
    TestSaga s("z queue undo | p queue pivot parks, b queue parks; parks deadline",
               Writes::each_and_holds);
    s.start();
    s.serve("z");
    s.claim("p");
    s.state().deadline_at = s.now;
    s.run_deadline();
    EXPECT_EQ(s.text(), "running: p claimed, b held");
    EXPECT_TRUE(asks_to_cancel(s));
    s.fail("p", FailureClass::retryable);
    EXPECT_EQ(s.text(), "parked for p: p held, b held");
    s.retry();
    s.pass(5);
    s.serve("p");
    s.serve("b");
    EXPECT_EQ(s.text(), "completed");
}

TEST(SagaPark, TheTimeThatItIsParkedDoesNotCountForTheDeadline) {
    TestSaga s("a queue parks once | b queue; deadline");
    s.start();
    s.pass(10);
    s.refuse("a");
    s.pass(5000);
    s.run_deadline(); // which does not run
    EXPECT_EQ(s.text(), "parked for a: deadline held");
    s.retry();
    EXPECT_EQ(s.text(), "running: deadline in 990, a due");
    EXPECT_EQ(s.tables.deadline_at, (2000 + 5000) * second);
    EXPECT_FALSE(s.tables.saga.parked_at);
}

TEST(SagaPark, ALateAnswerAndAPersonMoveTheDeadlineAlike) {
    for (const bool late : {false, true}) {
        TestSaga s("a queue parks once | b queue; deadline");
        s.start();
        s.claim("a");
        const std::int64_t lease = lease_of(s, "a");
        s.expire("a"); // at 1030
        s.pass(100);
        if (late)
            s.complete_late(s.step("a"), lease);
        else
            s.resolve("a", ResolveOutcome::done);
        EXPECT_EQ(s.text(), "running: deadline in 970, b due");
        EXPECT_EQ(s.tables.deadline_at, (2000 + 100) * second);
    }
}

TEST(SagaPark, ATimeThatItIsAlsoSuspendedCountsOnce) {
    TestSaga s("a queue parks once | b queue; deadline");
    s.start();
    s.claim("a");
    s.suspend();
    s.pass(10);
    s.fail("a", non_retryable);
    s.pass(100);
    s.resume();
    EXPECT_EQ(s.tables.deadline_at, (2000 + 110) * second);
    s.pass(50);
    s.retry();
    EXPECT_EQ(s.tables.deadline_at, (2000 + 160) * second);
}

TEST(SagaPark, ASuspensionThatOutlastsTheParkCountsWhole) {
    TestSaga s("a queue parks once | b queue; deadline");
    s.start();
    s.claim("a");
    s.suspend();
    s.pass(10);
    s.fail("a", non_retryable);
    s.pass(100);
    s.retry();
    EXPECT_EQ(s.text(), "suspended: deadline held, a held");
    s.pass(50);
    s.resume();
    EXPECT_EQ(s.tables.deadline_at, (2000 + 160) * second);
}

// --------------------------------------------------------------------------------------- children

TEST(SagaPark, OfAParentDoesNotReachItsChild) {
    for (const bool at_deadline : {false, true}) {
        TestSaga s("c child undo, b queue parks; parks deadline");
        s.start();
        s.run("c");
        s.claim("b");
        s.state().deadline_at = s.now;
        if (at_deadline)
            s.run_deadline();
        else
            s.fail("b", non_retryable);
        EXPECT_EQ(s.state().row.status, Status::parked);
        EXPECT_TRUE(s.state().changes.children.empty());
        EXPECT_FALSE(s.children.at(1).is_requested);
    }
}

TEST(SagaPark, AParentGoesOnWithAnotherChild) {
    TestSaga s("c child parks | b queue");
    s.start();
    s.run("c");
    s.child_ends("c", Status::failed);
    EXPECT_EQ(s.text(), "parked for c");
    s.retry();
    s.run("c");
    EXPECT_EQ(s.children.at(1).run, 1);
    s.child_ends("c", Status::completed);
    EXPECT_EQ(s.text(), "running: b due");
}

// -----------------------------------------------------------------------------------
// compensate_saga

TEST(SagaCompensate, IsForSagasThatAreParkedOrSuspended) {
    TestSaga s("a queue undo | b queue undo");
    s.start();
    EXPECT_EQ(s.compensate(), "refused, neither parked nor suspended");
    s.serve("a");
    EXPECT_EQ(s.compensate(), "refused, neither parked nor suspended");
    s.suspend();
    EXPECT_EQ(s.compensate(), "");
    EXPECT_EQ(s.text(), "compensating: ~a due");
    EXPECT_EQ(s.compensate(), ""); // said again
    EXPECT_EQ(s.text(), "compensating: ~a due");
    s.serve("a", Direction::compensate);
    EXPECT_EQ(s.compensate(), "refused");
}

TEST(SagaCompensate, HasNothingToUndo) {
    TestSaga s("a queue undo | b queue undo");
    s.start();
    s.suspend();
    EXPECT_EQ(s.compensate(), "");
    EXPECT_EQ(s.text(), "failed");
}

TEST(SagaCompensate, LetsAStepInFlightSettleFirst) {
    TestSaga s("a queue undo parks once, b queue undo");
    s.start();
    s.claim("b");
    s.refuse("a");
    EXPECT_EQ(s.compensate(), "");
    EXPECT_EQ(s.text(), "compensating: b claimed");
    s.complete("b");
    EXPECT_EQ(s.text(), "compensating: ~b due");
}

TEST(SagaCompensate, IsARequestWhileAPivotIsInDoubt) {
    TestSaga s("a queue undo | p queue pivot parks once, b queue parks");
    s.start();
    s.serve("a");
    s.claim("p");
    s.expire("p");
    EXPECT_EQ(s.text(), "parked for p: p waits, b held");
    EXPECT_EQ(s.compensate(), "");
    EXPECT_EQ(s.text(), "parked for p: p waits, b held");
    EXPECT_EQ(s.state().row.compensation_requested, CompensationRequest::cancel);
    EXPECT_EQ(s.compensate(), "");
    EXPECT_EQ(s.resolve("p", ResolveOutcome::never_done), "");
    EXPECT_EQ(s.text(), "compensating: ~a due");
}

TEST(SagaCompensate, ARequestOfASuspendedSagaIsSaidAgain) {
    TestSaga s("a queue undo | p queue pivot");
    s.start();
    s.serve("a");
    s.claim("p");
    s.suspend();
    EXPECT_EQ(s.compensate(), "");
    EXPECT_EQ(s.text(), "running: p claimed");
    EXPECT_EQ(s.compensate(), "");
    s.fail("p", non_retryable);
    EXPECT_EQ(s.text(), "compensating: ~a due");
}

TEST(SagaCompensate, DoesNotTryACompensationAgain) {
    TestSaga s("a queue undo | b queue parks");
    s.start();
    s.serve("a");
    s.refuse("b");
    s.compensate();
    s.refuse("a", Direction::compensate);
    EXPECT_EQ(s.text(), "parked~ for ~a");
    EXPECT_EQ(s.compensate(), "refused, after its compensation began");
}

TEST(SagaCompensate, SpreadsWhatItMakesDue) {
    TestSaga s("a queue undo | b queue parks");
    s.start();
    s.serve("a");
    s.refuse("b");
    s.compensate(40 * second);
    EXPECT_EQ(s.work("a", Direction::compensate)->due_at, s.now + 40 * second);
}

} // namespace
} // namespace stacksaga::core
