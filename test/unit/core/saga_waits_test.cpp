// Goal: what a saga waits for ends its wait, once, whatever comes first. Method: timers, signals,
// children and deadlines, each before, while and after the saga waits for it.
#include "saga_fixture.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

constexpr Direction undo = Direction::compensate;

// ----------------------------------------------------------------------------------------- timers

TEST(SagaTimer, ItsDelayCountsFromWhenItsTurnCame) {
    TestSaga s("a sql | t timer | b sql");
    s.start();
    s.run("a");
    EXPECT_EQ(s.text(), "running: t in 10");
    s.pass(10);
    s.run("t");
    EXPECT_EQ(s.text(), "running: b due");
    const Effect &marker = s.tables.effects.back();
    EXPECT_EQ(marker.attempt, 1);
    EXPECT_EQ(marker.started_at, s.now - 10 * second);
    EXPECT_TRUE(marker.output.is_null);
}

TEST(SagaTimer, AFirstStepBeginsTheSaga) {
    TestSaga s("t timer | b sql");
    s.start();
    s.pass(10);
    s.run("t");
    EXPECT_EQ(s.text(), "running: b due");
}

// ---------------------------------------------------------------------------------------- signals

TEST(SagaSignal, OneThatCameEarlyIsTakenWhenTheWaitBegins) {
    TestSaga s("a sql | w signal | b sql");
    s.start();
    s.signal("w");
    s.signal("w");
    EXPECT_EQ(s.text(), "pending: a due");
    s.run("a");
    EXPECT_EQ(s.text(), "running: b due");
    EXPECT_EQ(s.tables.effects.back().output.bits, 1U); // the oldest
    EXPECT_EQ(s.tables.takers, (std::vector<std::int16_t>{2, 0}));
}

TEST(SagaSignal, OneThatComesLaterEndsTheWait) {
    TestSaga s("w signal endless | b sql");
    s.start();
    EXPECT_EQ(s.text(), "pending: w waits");
    s.signal("w");
    EXPECT_EQ(s.text(), "running: b due");
    EXPECT_EQ(s.tables.effects.back().attempt, 1);
}

TEST(SagaSignal, SeveralStepsTakeOneEach) {
    for (const Writes writes : {Writes::each_event, Writes::at_the_end}) {
        TestSaga s("a sql | w1 signal, x signal | w2 signal, w3 signal | b sql", writes);
        s.start();
        s.write();
        s.signal("x");
        s.signal("w1");
        s.signal("w1");
        s.run("a"); // and the next stage takes what is left
        EXPECT_EQ(s.text(), "running: w3 in 60");
        s.signal("w1");
        EXPECT_EQ(s.text(), "running: b due");
        s.write();
        EXPECT_EQ(s.tables.takers, (std::vector<std::int16_t>{3, 2, 4, 5}));
    }
}

TEST(SagaSignal, OneThatDoesNotComeInTimeIsAFailure) {
    TestSaga s("a queue undo | w signal");
    s.start();
    s.serve("a");
    s.pass(60);
    s.run("w");
    EXPECT_EQ(s.text(), "compensating: ~a due");
    EXPECT_EQ(s.tables.saga.error, "the signal did not arrive in time");
    EXPECT_EQ(s.tables.failures[0].attempt, 1);
    EXPECT_EQ(s.tables.failures[0].failure_class, FailureClass::non_retryable);
}

TEST(SagaSignal, AFallbackIsNotEndedByTheSignal) {
    TestSaga s("w signal fallback");
    s.start();
    s.pass(60);
    s.run("w");
    EXPECT_EQ(s.text(), "running: w fallback due");
    s.signal("w");
    EXPECT_EQ(s.text(), "running: w fallback due");
    s.serve("w");
    EXPECT_EQ(s.text(), "completed");
}

TEST(SagaSignal, TheWaitOfASagaThatBeginsLaterBeginsThen) {
    for (const bool is_early : {false, true}) {
        TestSaga s("w signal | b sql");
        s.start(100);
        if (is_early)
            s.signal("w");
        EXPECT_EQ(s.text(), "pending: w in 100");
        s.pass(100);
        s.run("w");
        EXPECT_EQ(s.text(), is_early ? "running: b due" : "pending: w in 60");
    }
}

TEST(SagaSignal, ASuspendedSagaTakesItWhenItIsResumed) {
    TestSaga s("w signal | b sql");
    s.start();
    s.suspend();
    s.signal("w");
    EXPECT_EQ(s.text(), "suspended: w held");
    s.resume();
    EXPECT_EQ(s.text(), "running: b due");
}

TEST(SagaSignal, AParkedSagaTakesItAndStaysParked) {
    TestSaga s("p queue pivot, w signal endless | b sql");
    s.start();
    s.claim("p");
    s.fail("p", FailureClass::unknown);
    EXPECT_EQ(s.text(), "parked for p: p waits, w waits");
    s.signal("w");
    EXPECT_EQ(s.text(), "parked for p: p waits");
    s.resolve("p", ResolveOutcome::done);
    EXPECT_EQ(s.text(), "running: b due");
}

TEST(SagaSignal, AWaitThatIsKeptBlocksNothing) {
    TestSaga s("p queue pivot, w signal endless | b sql");
    s.start();
    s.claim("p");
    s.expire("p");
    EXPECT_EQ(s.text(), "parked for p: p waits, w waits");
    s.complete("p"); // late
    EXPECT_EQ(s.text(), "running: w waits");
    s.signal("w");
    EXPECT_EQ(s.text(), "running: b due");
}

// -------------------------------------------------------------------------------------- deadlines

TEST(SagaDeadline, BeginsCompensationOnce) {
    TestSaga s("a queue undo | b queue; deadline");
    s.start();
    s.serve("a");
    s.pass(1000);
    EXPECT_EQ(s.text(), "running: deadline due, b due");
    s.run_deadline();
    EXPECT_EQ(s.text(), "compensating: ~a due");
    EXPECT_EQ(s.tables.saga.error, "the deadline of the saga passed");
    EXPECT_FALSE(s.tables.saga.failed_step);
    s.run_deadline();
    EXPECT_EQ(s.text(), "compensating: ~a due");
}

/// The deadline, or the request of the saga's parent, cannot be read; false: it parks for no step.
bool cannot_read(TestSaga &s) {
    bool is_parked = false;
    s.decide([&](SagaState &saga) { is_parked = saga_is_unusable(saga, "a chunk is missing"); });
    return is_parked;
}

TEST(SagaDeadline, ParksForAnOpenStepWhenItCannotBeRead) {
    TestSaga s("a queue undo | b queue; deadline");
    s.start();
    s.serve("a");
    s.claim("b");
    s.pass(1000);
    EXPECT_TRUE(cannot_read(s));
    EXPECT_EQ(s.text(), "parked for b: deadline held, b claimed");
    EXPECT_EQ(s.tables.saga.error, "a chunk is missing");
    EXPECT_TRUE(s.tables.failures.empty()) << "no attempt is charged";
    EXPECT_FALSE(cannot_read(s)) << "it is parked";
    EXPECT_EQ(s.tables.statuses.size(), 2U); // running, parked
    s.retry();
    EXPECT_EQ(s.text(), "running: deadline due, b claimed");
    s.run_deadline();
    EXPECT_EQ(s.tables.saga.direction, Direction::compensate);
}

TEST(SagaParent, WhoseRequestCannotBeReadParksAChildThatCompensates) {
    TestSaga s("a queue undo | b queue undo | c queue; child");
    s.start();
    s.serve("a");
    s.serve("b");
    s.refuse("c");
    EXPECT_TRUE(cannot_read(s));
    EXPECT_EQ(s.text(), "parked~ for ~b: ~b held");
    EXPECT_EQ(s.retry(), "") << "nothing of it has failed";
    EXPECT_EQ(s.text(), "compensating: ~b due");
    s.claim("b", Direction::compensate);
    s.fail("b", FailureClass::retryable, Direction::compensate);
    EXPECT_TRUE(cannot_read(s));
    EXPECT_EQ(s.retry(), "");
    EXPECT_EQ(s.text(), "compensating: ~b in 5");
}

TEST(SagaParent, WhoseRequestCannotBeReadParksAChildThatHasAnOpenStep) {
    TestSaga s("a queue undo | b queue; child");
    s.start();
    s.serve("a");
    EXPECT_TRUE(cannot_read(s));
    EXPECT_EQ(s.text(), "parked for b: b held");
    s.decide([](SagaState &saga) { compensate_for_parent(saga, "the parent"); });
    EXPECT_EQ(s.text(), "compensating: ~a due") << "the request stands";
}

TEST(SagaParent, WhoseRequestCannotBeReadLeavesACompletedChildAsItIs) {
    TestSaga s("a queue undo; child");
    s.start();
    s.serve("a");
    const std::string before = s.tables.dump();
    EXPECT_FALSE(cannot_read(s));
    EXPECT_EQ(s.tables.dump(), before);
}

Failure unread(const TestSaga &s) {
    return {.failure_class = FailureClass::non_retryable,
            .outcome_known = true,
            .error = "a chunk is missing",
            .since = s.now};
}

/// The child of `c` has completed and cannot read that it is to compensate; false: nothing waits.
bool cannot_compensate(TestSaga &s) {
    bool waits = false;
    s.decide(
        [&](SagaState &saga) { waits = child_cannot_compensate(saga, s.step("c"), unread(s)); });
    s.children.at(s.step("c").no).is_requested = false;
    return waits;
}

/// The announcement of the child of `c` cannot be read; false: it stays.
bool cannot_read_child(TestSaga &s) {
    bool is_settled = false;
    s.decide(
        [&](SagaState &saga) { is_settled = child_is_unreadable(saga, s.step("c"), unread(s)); });
    return is_settled;
}

TEST(SagaParent, ParksForAChildThatCannotReadItsRequest) {
    for (const bool is_suspended : {false, true}) {
        TestSaga s("c child undo | b queue");
        s.start();
        s.run("c");
        s.child_ends("c", Status::completed);
        s.refuse("b");
        EXPECT_FALSE(cannot_compensate(s)) << "it has asked for nothing yet";
        s.run("c", Direction::compensate);
        if (is_suspended)
            s.suspend();
        EXPECT_TRUE(cannot_compensate(s));
        EXPECT_EQ(s.text(), "parked~ for ~c");
        EXPECT_EQ(s.tables.failures.back().error, "a chunk is missing");
        EXPECT_FALSE(cannot_compensate(s));
        if (is_suspended)
            s.resume();
        EXPECT_EQ(s.retry(), "");
        s.run("c", Direction::compensate);
        EXPECT_TRUE(s.children.at(1).is_requested) << "it asks again";
        s.child_ends("c", Status::failed);
        EXPECT_EQ(s.text(), "failed");
        EXPECT_EQ(s.markers(), "c ~c");
    }
}

TEST(SagaParent, ThatIsParkedForAnotherStepParksForTheChildToo) {
    TestSaga s("c child undo, a queue undo | b queue");
    s.start();
    s.run("c");
    s.child_ends("c", Status::completed);
    s.serve("a");
    s.refuse("b");
    s.run("c", Direction::compensate);
    s.refuse("a", Direction::compensate);
    EXPECT_EQ(s.text(), "parked~ for ~a: ~c claimed");
    EXPECT_TRUE(cannot_compensate(s));
    EXPECT_EQ(s.text(), "parked~ for ~a");
    EXPECT_EQ(s.resolve("a", ResolveOutcome::done), "");
    EXPECT_EQ(s.text(), "parked~ for ~c");
    EXPECT_EQ(s.resolve("c", ResolveOutcome::done), "");
    EXPECT_EQ(s.text(), "failed");
}

TEST(SagaChild, ThatCannotBeReadMayHaveCompleted) {
    TestSaga s("c child undo started | b queue");
    s.start();
    s.run("c");
    s.children.at(1).status = Status::completed;
    EXPECT_TRUE(cannot_read_child(s));
    EXPECT_EQ(s.text(), "parked for c: c waits");
    TestSaga t("c child undo started | b queue");
    t.start();
    t.run("c");
    t.children.at(1).status = Status::completed;
    EXPECT_TRUE(cannot_read_child(t));
    s.retry();
    s.run("c");
    EXPECT_EQ(s.text(), "running: b due") << "it is read now";
    t.cancel();
    EXPECT_EQ(t.text(), "compensating: ~c due") << "what it did is undone";
}

TEST(SagaChild, ThatCannotBeReadWhenItHasCompensated) {
    TestSaga s("c child undo | b queue");
    s.start();
    s.run("c");
    s.child_ends("c", Status::completed);
    s.refuse("b");
    s.run("c", Direction::compensate);
    s.children.at(1).status = Status::failed;
    EXPECT_TRUE(cannot_read_child(s));
    EXPECT_EQ(s.text(), "parked~ for ~c");
    s.retry();
    s.run("c", Direction::compensate);
    EXPECT_EQ(s.text(), "failed");
}

TEST(SagaChild, IsLookedAtAgainWhereItsEndAloneDecides) {
    TestSaga s("c child undo once | b queue");
    s.start();
    s.run("c");
    s.expire("c");
    EXPECT_EQ(s.text(), "parked~ for c") << "undone only if it has completed";
    EXPECT_FALSE(cannot_read_child(s)) << "nothing else tells how it ended";
    EXPECT_EQ(s.text(), "parked~ for c");
    EXPECT_EQ(s.retry(), "");
    EXPECT_EQ(s.looks, 1);
    s.child_ends("c", Status::completed);
    EXPECT_EQ(s.text(), "compensating: ~c due");
    EXPECT_TRUE(cannot_read_child(s)) << "nobody waits for its end";
}

TEST(SagaDeadline, IsSeenByWhoeverWouldBeginAnAttemptAfterIt) {
    TestSaga s("a queue; deadline");
    s.start();
    s.pass(1000);
    EXPECT_FALSE(s.claim("a"));
    EXPECT_EQ(s.text(), "failed");

    TestSaga t("a sql; deadline");
    t.start();
    t.pass(1000);
    t.run("a");
    EXPECT_EQ(t.text(), "failed");
    EXPECT_EQ(t.markers(), "");
}

TEST(SagaDeadline, IsIgnoredPastAnIrreversibleStep) {
    TestSaga s("p queue pivot | b queue; deadline");
    s.start();
    s.serve("p");
    s.pass(1000);
    s.run_deadline();
    EXPECT_EQ(s.text(), "running: b due");
    EXPECT_TRUE(s.claim("b"));
}

TEST(SagaDeadline, WaitsForAClaimedStep) {
    TestSaga s("a queue undo; deadline");
    s.start();
    s.pass(990);
    s.claim("a");
    s.pass(10);
    s.run_deadline();
    EXPECT_EQ(s.text(), "compensating: a claimed");
    s.complete("a");
    EXPECT_EQ(s.text(), "compensating: ~a due");
}

TEST(SagaDeadline, OfASuspendedSagaWaits) {
    TestSaga s("a queue; deadline");
    s.start();
    s.suspend();
    EXPECT_EQ(s.text(), "suspended: deadline held, a held");
    s.pass(2000);
    s.resume();
    EXPECT_EQ(s.text(), "pending: deadline in 1000, a due"); // moved by the suspension
    s.pass(1000);
    s.run_deadline();
    EXPECT_EQ(s.text(), "failed");
}

// --------------------------------------------------------------------------------------- children

TEST(SagaChild, IsStartedAndWaitedFor) {
    TestSaga s("c child | b sql");
    s.start();
    s.run("c");
    EXPECT_EQ(s.text(), "running: c claimed");
    EXPECT_EQ(s.children.at(1).run, 0);
    s.child_ends("c", Status::completed);
    EXPECT_EQ(s.text(), "running: b due");
    EXPECT_EQ(s.tables.effects[0].output.bits, 100U);
}

TEST(SagaChild, ThatFailedIsAFailureAndWasNeverDone) {
    TestSaga s("a queue undo | c child undo started");
    s.start();
    s.serve("a");
    s.run("c");
    s.child_ends("c", Status::failed);
    EXPECT_EQ(s.text(), "compensating: ~a due");
    EXPECT_EQ(s.tables.saga.error, "the child failed");
}

TEST(SagaChild, IsWaitedForAgainWhileAttemptsAreLeft) {
    TestSaga s("c child twice undo started");
    s.start();
    s.run("c");
    s.expire("c");
    EXPECT_EQ(s.text(), "running: c in 5");
    EXPECT_EQ(s.tables.failures[0].failure_class, FailureClass::retryable);
    s.pass(5);
    s.run("c");
    EXPECT_EQ(s.children.at(1).run, 0); // the same child
    s.expire("c");
    EXPECT_EQ(s.tables.failures[1].failure_class, FailureClass::unknown);
    EXPECT_EQ(s.text(), "compensating: ~c due");
}

TEST(SagaChild, ThatEndsBetweenTwoAttemptsCounts) {
    TestSaga s("c child twice");
    s.start();
    s.run("c");
    s.expire("c");
    s.child_ends("c", Status::completed);
    EXPECT_EQ(s.text(), "completed");
}

TEST(SagaChild, ThatEndedBeforeItsRowWasRunIsSettledAtOnce) {
    TestSaga s("c child eager");
    s.start();
    s.run("c");
    s.expire("c");
    s.children.at(1).status = Status::completed;
    s.run("c");
    EXPECT_EQ(s.text(), "completed");
}

TEST(SagaChild, ThatCannotBeUndoneAndIsLateParksTheSaga) {
    TestSaga s("a queue undo | c child pivot once");
    s.start();
    s.serve("a");
    s.run("c");
    s.expire("c");
    EXPECT_EQ(s.text(), "parked for c: c waits");
    s.child_ends("c", Status::completed); // its late end
    EXPECT_EQ(s.text(), "completed");
}

TEST(SagaChild, IsAskedToCompensateWithTheSagaThatWaitsForIt) {
    TestSaga s("c child undo, b queue");
    s.start();
    s.run("c");
    s.refuse("b");
    EXPECT_EQ(s.text(), "compensating: c claimed");
    EXPECT_TRUE(s.children.at(1).is_requested);
    s.child_ends("c", Status::failed);
    EXPECT_EQ(s.text(), "failed");
}

TEST(SagaChild, ThatCompletedIsUndoneByItsOwnCompensation) {
    TestSaga s("c child undo | b queue");
    s.start();
    s.run("c");
    s.child_ends("c", Status::completed);
    s.refuse("b");
    s.run("c", undo);
    EXPECT_EQ(s.text(), "compensating: ~c claimed");
    EXPECT_TRUE(s.children.at(1).is_requested);
    s.child_ends("c", Status::failed);
    EXPECT_EQ(s.text(), "failed");
    EXPECT_EQ(s.markers(), "c ~c");
}

TEST(SagaChild, ThatRefusesToCompensateParksTheSaga) {
    TestSaga s("c child undo | b queue");
    s.start();
    s.run("c");
    s.child_ends("c", Status::completed);
    s.refuse("b");
    s.run("c", undo);
    s.decide([&](SagaState &saga) { child_settled(saga, s.step("c"), s.children.at(1)); });
    EXPECT_EQ(s.text(), "compensating: ~c claimed"); // it has not read the request yet
    s.child_ends("c", Status::completed);
    EXPECT_EQ(s.text(), "parked~ for ~c");
    EXPECT_EQ(s.tables.failures.back().error, "the child is irreversible");
}

TEST(SagaChild, NothingIsUndoneWhereNoneStands) {
    TestSaga s("c child undo | b queue");
    s.start();
    s.run("c");
    s.child_ends("c", Status::completed);
    s.refuse("b");
    s.children.at(1).status = Status::failed;
    s.run("c", undo);
    EXPECT_EQ(s.text(), "failed");
}

TEST(SagaChild, ANewOneIsStartedForTheRetryOfOneThatFailed) {
    TestSaga s("p queue pivot | c child");
    s.start();
    s.serve("p");
    s.run("c");
    s.child_ends("c", Status::failed);
    EXPECT_EQ(s.text(), "parked for c");
    s.retry();
    s.run("c");
    EXPECT_EQ(s.children.at(s.step("c").no).run, 1);
    EXPECT_EQ(s.text(), "running: c claimed");
}

TEST(SagaChild, TheEndOfOneThatNobodyWaitsForChangesNothing) {
    TestSaga s("c child fallback");
    s.start();
    s.run("c");
    s.child_ends("c", Status::failed);
    EXPECT_EQ(s.text(), "running: c fallback due");
    s.child_ends("c", Status::completed);
    EXPECT_EQ(s.text(), "running: c fallback due");
    s.decide([&](SagaState &saga) { child_settled(saga, s.step("c"), std::nullopt); });
    EXPECT_EQ(s.text(), "running: c fallback due");
    s.serve("c");
    EXPECT_EQ(s.text(), "completed");
    EXPECT_TRUE(s.tables.notices_removed);
}

} // namespace
} // namespace stacksaga::core
