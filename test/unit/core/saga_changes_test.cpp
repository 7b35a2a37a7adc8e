// Goal: exactly what differs is written, and only what a decision needs is read. Method: the rows
// and lists that decisions leave behind, and a count of what the engine has asked for.
#include "saga_fixture.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

constexpr Direction undo = Direction::compensate;

const WorkRow *row_of(TestSaga &s, std::string_view name, Direction d = Direction::act) {
    for (const WorkRow &row : s.state().work)
        if (row.work.is(s.step(name).no, d))
            return &row;
    return nullptr;
}

/// "added", or "" where there is no row.
std::string_view row_state(TestSaga &s, std::string_view name, Direction d = Direction::act) {
    constexpr std::array<std::string_view, 5> names{"stored", "added", "changed", "removed",
                                                    "gone"};
    const WorkRow *row = row_of(s, name, d);
    return row == nullptr ? "" : names[static_cast<std::size_t>(row->state)];
}

std::string statuses_of(TestSaga &s) {
    std::string out;
    for (const SagaRow &row : s.state().changes.rows)
        out += (out.empty() ? "" : " ") + std::string(name_of(row.status));
    return out;
}

// ------------------------------------------------------------------------------------ rows of work

TEST(SagaChanges, WhatComesAndGoesIsNeverWritten) {
    TestSaga s("a sql | b sql | c sql", Writes::at_the_end);
    s.start();
    s.write();
    s.run("a");
    s.run("b");
    EXPECT_EQ(row_state(s, "a"), "removed");
    EXPECT_EQ(row_state(s, "b"), "gone");
    EXPECT_EQ(row_state(s, "c"), "added");
    s.run("c");
    EXPECT_EQ(row_state(s, "c"), "gone");
    EXPECT_EQ(statuses_of(s), "completed"); // all in one transaction
    s.write();
    EXPECT_EQ(s.tables.saga.status, Status::completed);
    EXPECT_TRUE(s.tables.work.empty());
}

TEST(SagaChanges, ARowThatComesAgainIsChangedOrAdded) {
    TestSaga s("x queue fallback", Writes::at_the_end);
    s.start();
    s.write();
    s.refuse("x");
    EXPECT_EQ(row_state(s, "x"), "changed");
    const Work &fallback = row_of(s, "x")->work;
    EXPECT_FALSE(fallback.lease || fallback.lease_until || fallback.started_at || fallback.worker);

    TestSaga t("x queue fallback", Writes::at_the_end);
    t.start();
    t.refuse("x");
    EXPECT_EQ(row_state(t, "x"), "added");
}

TEST(SagaChanges, ADecisionLeavesOtherRowsAsTheyAre) {
    TestSaga s("a queue, b queue, c queue; deadline", Writes::at_the_end);
    s.start();
    s.write();
    s.claim("a");
    EXPECT_EQ(row_state(s, "a"), "changed");
    s.fail("a", FailureClass::retryable);
    EXPECT_EQ(row_state(s, "b"), "stored");
    s.write();
    s.decide(
        [&](SagaState &saga) { extend_work(saga, *find_work(saga, 2, Direction::act), 5, 5); });
    EXPECT_EQ(row_state(s, "b"), "changed");
    EXPECT_EQ(row_state(s, "a"), "stored");
}

TEST(SagaChanges, WhoCanDoWhatFallsDueIsWoken) {
    TestSaga s("a queue, b queue | c queue", Writes::at_the_end);
    s.start();
    EXPECT_TRUE(row_of(s, "a")->wakes);
    s.write();
    s.claim("a");
    s.claim("b");
    EXPECT_FALSE(row_of(s, "a")->wakes);
    s.fail("a", FailureClass::retryable);
    EXPECT_TRUE(row_of(s, "a")->wakes);
    s.write();
    s.suspend();
    EXPECT_FALSE(row_of(s, "a")->wakes);
    s.write();
    s.resume();
    EXPECT_TRUE(row_of(s, "a")->wakes);
    EXPECT_TRUE(row_of(s, "b")->wakes);
}

TEST(SagaChanges, APauseForgetsTheClaimAndKeepsWhatIsStillTrue) {
    TestSaga s("a queue");
    s.start();
    s.claim("a");
    const std::optional<std::int64_t> begun = s.work("a")->started_at;
    s.fail("a", FailureClass::retryable);
    const Work row = *s.work("a");
    EXPECT_FALSE(row.lease || row.lease_until || row.verifying);
    EXPECT_EQ(row.attempt, 1);
    EXPECT_EQ(row.started_at, begun);
    EXPECT_EQ(row.worker, "service");
}

TEST(SagaChanges, ADeferredRetryIsDeferredNoMoreOnceItBegins) {
    for (const char *plan : {"a queue", "a message", "a child"}) {
        TestSaga s(plan);
        s.start();
        s.decide([&](SagaState &saga) { defer_work(saga, *s.work("a"), s.now + 3 * second); });
        EXPECT_EQ(s.text(), "pending: a in 3");
        EXPECT_TRUE(s.tables.work[0].deferred) << plan;
        s.pass(3);
        if (s.step("a").kind == StepKind::queue)
            s.claim("a");
        else
            s.run("a");
        EXPECT_TRUE(s.work("a")->is_claimed()) << plan;
        EXPECT_FALSE(s.work("a")->deferred) << plan;
    }
}

// ------------------------------------------------------------------------------------------ status

TEST(SagaChanges, AStatusThatIsPassedThroughIsNotWritten) {
    TestSaga s("a sql undo | b sql", Writes::at_the_end);
    s.start();
    s.run("a");
    s.run_fails("b", FailureClass::non_retryable);
    EXPECT_EQ(statuses_of(s), "compensating");
    s.run("a", undo);
    EXPECT_EQ(statuses_of(s), "failed");
    EXPECT_EQ(s.state().changes.rows[0].error, "non_retryable");
    EXPECT_EQ(s.state().changes.rows[0].failed_step, s.step("b").no);
    s.write();
}

TEST(SagaChanges, AStatusThatTheTransitionsNeedIsWritten) {
    TestSaga s("a queue undo | b queue", Writes::at_the_end);
    s.start();
    s.serve("a");
    s.write();
    s.refuse("b");
    s.refuse("a", undo); // running does not become parked with a compensation to do
    EXPECT_EQ(statuses_of(s), "compensating parked");
    s.write();
    s.retry();
    s.serve("a", undo);
    EXPECT_EQ(statuses_of(s), "failed"); // which parked may become
    s.write();
}

TEST(SagaChanges, ASagaThatStaysParkedIsNotWritten) {
    TestSaga s("p queue pivot", Writes::at_the_end);
    s.start();
    s.claim("p");
    s.expire("p");
    s.write();
    s.fail("p", FailureClass::unknown);
    EXPECT_EQ(statuses_of(s), "");
    EXPECT_EQ(s.state().row.error, "the lease ran out");
    s.write();
}

TEST(SagaChanges, TheFirstErrorStaysUntilTheSagaRunsAgain) {
    TestSaga s("a queue undo | b queue, c queue");
    s.start();
    s.serve("a");
    s.claim("b");
    s.claim("c");
    s.decide([&](SagaState &saga) {
        step_failed(saga, s.step("b"), *s.work("b"),
                    {.failure_class = FailureClass::non_retryable,
                     .outcome_known = true,
                     .error = "the first",
                     .since = saga.now},
                    0.5);
    });
    s.fail("c", FailureClass::non_retryable);
    s.refuse("a", undo);
    EXPECT_EQ(s.text(), "parked~ for ~a");
    EXPECT_EQ(s.tables.saga.error, "the first");
    EXPECT_EQ(s.tables.saga.failed_step, s.step("b").no);
}

// ----------------------------------------------------------------------------------- what is read

TEST(SagaReads, AStepThatGoesForwardReadsNothing) {
    TestSaga s("a sql | b queue, c queue | t timer | m message | k child | z sql; deadline");
    s.start();
    s.run("a");
    s.serve("b");
    s.claim("c");
    s.fail("c", FailureClass::retryable);
    s.pass(5);
    s.serve("c");
    s.pass(10);
    s.run("t");
    s.run("m");
    s.complete("m");
    s.run("k");
    s.child_ends("k", Status::completed);
    s.run("z");
    EXPECT_EQ(s.text(), "completed");
    EXPECT_EQ(s.effect_loads, 0);
    EXPECT_EQ(s.failure_loads, 0);
    EXPECT_EQ(s.signal_loads, 0);
}

TEST(SagaReads, SignalsAreReadOnceAndWhereAStepMayTakeThem) {
    TestSaga s("a sql | w signal, x signal | y signal | b sql", Writes::at_the_end);
    s.start();
    s.write();
    for (const char *name : {"w", "x", "y"})
        s.signal(name);
    EXPECT_EQ(s.signal_loads, 0);
    s.run("a");
    EXPECT_EQ(s.text(), "running: b due");
    EXPECT_EQ(s.signal_loads, 1);
    EXPECT_EQ(s.effect_loads, 0);
    EXPECT_EQ(s.failure_loads, 0);
}

TEST(SagaReads, ProgressIsReadOnceWhenItIsAskedFor) {
    TestSaga s("a queue undo | b queue undo | c queue", Writes::each_and_holds);
    s.start();
    s.serve("a");
    s.serve("b");
    EXPECT_EQ(s.effect_loads, 0);
    EXPECT_EQ(s.failure_loads, 0);
    s.refuse("c");
    s.serve("b", undo);
    s.serve("a", undo);
    EXPECT_EQ(s.text(), "failed");
    EXPECT_EQ(s.effect_loads, 1);
    EXPECT_EQ(s.failure_loads, 1);
}

/// The same events with progress read before, when it is asked for, and over what is not written.
template <class F> void expect_same_however_read(std::string_view plan, F &&events) {
    std::string expected;
    for (const bool is_read_first : {false, true})
        for (const Writes writes :
             {Writes::each_event, Writes::each_and_holds, Writes::at_the_end}) {
            TestSaga s(std::string(plan), writes);
            s.loads_progress_first = is_read_first;
            s.load();
            events(s);
            s.write();
            if (expected.empty())
                expected = s.tables.dump();
            EXPECT_EQ(s.tables.dump(), expected);
        }
}

TEST(SagaReads, WhatIsNotWrittenYetCountsAsIfItWere) {
    expect_same_however_read("a sql undo | b sql undo | c queue", [](TestSaga &s) {
        s.start();
        s.run("a");
        s.run("b");
        s.refuse("c");
        EXPECT_EQ(s.text(), "compensating: ~b due");
    });
    expect_same_however_read("a queue undo started eager twice", [](TestSaga &s) {
        s.start();
        s.claim("a");
        s.fail("a", FailureClass::unknown);
        s.claim("a");
        s.fail("a", FailureClass::retryable);
        EXPECT_EQ(s.text(), "compensating: ~a due");
    });
    expect_same_however_read("x queue fallback eager", [](TestSaga &s) {
        s.start();
        s.claim("x");
        s.fail("x", FailureClass::unknown);
        s.refuse("x"); // which does not settle the attempt before
        EXPECT_EQ(s.text(), "failed");
    });
}

TEST(SagaReads, AFailureAfterSettledOutcomesMayBeUnknownAgain) {
    expect_same_however_read("a queue undo started eager twice verify", [](TestSaga &s) {
        s.start();
        s.claim("a");
        s.fail("a", FailureClass::unknown);
        s.verify("a", "unknown");
        s.claim("a");
        s.fail("a", FailureClass::unknown);
        s.verify("a", "unknown");
        EXPECT_EQ(s.text(), "compensating: ~a due");
        s.write();
        EXPECT_FALSE(s.tables.failures[0].outcome_known);
        EXPECT_FALSE(s.tables.failures[1].outcome_known);
    });
}

} // namespace
} // namespace stacksaga::core
