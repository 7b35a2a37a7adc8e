// Goal: what each answer asserts, and nothing more. Method: one saga for each rule of what is in
// doubt, who acted, what a pending compensation waits for, and what a person may say.
#include "saga_fixture.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

constexpr Direction undo = Direction::compensate;

std::int64_t lease_of(const TestSaga &s, std::string_view name, std::int32_t attempt,
                      Direction d = Direction::act) {
    return make_lease(attempt, d, static_cast<std::uint64_t>(s.step(name).no));
}

// ---------------------------------------------------------------------------------------- in doubt

TEST(SagaDoubt, ARefusalSaysNothingOfTheAttemptBefore) {
    TestSaga s("a queue undo started fallback twice | z queue");
    s.start();
    s.claim("a");
    s.fail("a", FailureClass::unknown);
    s.pass(5);
    s.refuse("a");
    EXPECT_EQ(s.text(), "compensating: ~a due"); // and no fallback
}

TEST(SagaDoubt, NotDoneByVerifyIsOnlyNotSeenYet) {
    TestSaga s("a queue undo started fallback verify once | z queue");
    s.start();
    s.claim("a");
    s.expire("a");
    s.verify("a", "not_done");
    EXPECT_EQ(s.text(), "compensating: ~a due");

    TestSaga p("a queue pivot verify twice | z queue");
    p.start();
    p.claim("a");
    p.expire("a");
    p.verify("a", "not_done");
    EXPECT_EQ(p.text(), "running: a verifying in 5"); // it is not offered again
    p.pass(5);
    p.verify("a", "not_done");
    EXPECT_EQ(p.text(), "parked for a: a waits");
    p.retry();
    EXPECT_EQ(p.text(), "running: a verifying");
}

TEST(SagaDoubt, NeverSettlesAllAttempts) {
    TestSaga s("a queue undo started fallback verify | z queue");
    s.start();
    s.claim("a");
    s.expire("a");
    s.verify("a", "never");
    EXPECT_EQ(s.text(), "running: a fallback due");
    for (const StoredFailure &f : s.tables.failures)
        EXPECT_TRUE(f.outcome_known);
}

TEST(SagaDoubt, AVerifyThatRaisesIsAskedAgainWhenTheErrorIsRetryable) {
    const auto ask = [](std::string_view answer) {
        TestSaga s("a queue pivot verify twice");
        s.start();
        s.claim("a");
        s.expire("a");
        s.verify("a", answer);
        return s.text();
    };
    EXPECT_EQ(ask("raises retryable"), "running: a verifying in 5");
    EXPECT_EQ(ask("raises"), "parked for a: a waits");
}

TEST(SagaDoubt, ALateRefusalSettlesItsAttemptAlone) {
    TestSaga s("a queue undo started twice fallback | z queue");
    s.start();
    s.claim("a");
    s.expire("a");
    s.fail("a", FailureClass::non_retryable);
    EXPECT_EQ(s.text(), "running: a fallback due");

    TestSaga t("a queue undo started fallback | z queue");
    t.start();
    t.claim("a");
    t.expire("a");
    t.pass(5);
    t.claim("a");
    t.expire("a");
    t.fail("a", FailureClass::non_retryable); // the first attempt is in doubt as before
    EXPECT_EQ(t.text(), "running: a in 5");
}

TEST(SagaDoubt, AKeyThatMayBeForgottenIsNotRepeated) {
    const auto retried_after = [](std::int64_t seconds, const char *plan) {
        TestSaga s(plan);
        s.dedupe_retention = 1000 * second;
        s.start();
        s.serve("p");
        s.claim("a");
        s.expire("a");
        s.pass(seconds);
        return s.retry();
    };
    const std::string refused =
        "refused, since a step is in doubt for longer than its service remembers the key";
    EXPECT_EQ(retried_after(900, "p queue pivot | a queue once"), "");
    EXPECT_EQ(retried_after(1000, "p queue pivot | a queue once"), refused);
    EXPECT_EQ(retried_after(1000, "p queue pivot | a queue once idempotent"), "");

    TestSaga s("p queue pivot | a queue once verify");
    s.dedupe_retention = 1000 * second;
    s.start();
    s.serve("p");
    s.claim("a");
    s.expire("a");
    s.verify("a", "unknown");
    s.pass(1000);
    EXPECT_EQ(s.retry(), ""); // verify is asked first
    s.verify("a", "unknown");
    EXPECT_EQ(s.text(), "parked for a: a waits");
}

TEST(SagaDoubt, AKeyThatMayBeForgottenMeanwhileIsNotRepeated) {
    const auto goes_on_after = [](std::int64_t seconds, const char *plan) {
        TestSaga s(plan);
        s.dedupe_retention = 1000 * second;
        s.start();
        s.claim("a");
        s.expire("a");
        if (s.step("a").has_verify)
            s.verify("a", "not_done");
        s.suspend();
        s.pass(seconds);
        s.resume();
        s.claim("a");
        return s.text();
    };
    EXPECT_EQ(goes_on_after(900, "a queue undo"), "running: a claimed");
    EXPECT_EQ(goes_on_after(1000, "a queue undo"), "parked for a: a waits");
    EXPECT_EQ(goes_on_after(1000, "a queue undo idempotent"), "running: a claimed");
    EXPECT_EQ(goes_on_after(1000, "a queue undo verify"), "running: a verifying");

    TestSaga s("a queue undo fallback");
    s.dedupe_retention = 1000 * second;
    s.start();
    s.claim("a");
    s.expire("a");
    s.pass(2000); // nobody came for it
    EXPECT_FALSE(s.claim("a"));
    EXPECT_EQ(s.retry(),
              "refused, since a step is in doubt for longer than its service remembers the key");
    s.resolve("a", ResolveOutcome::never_done); // a person says that it did not happen and cannot
    EXPECT_EQ(s.text(), "running: a fallback due");
}

/// Compensations have two attempts; both were lost, and the second began 5 seconds ago.
void lose_compensation(TestSaga &s, const char *name) {
    s.claim(name, undo);
    s.expire(name, undo);
    s.pass(5);
    s.claim(name, undo);
    s.expire(name, undo);
}

TEST(SagaDoubt, ACompensationsKeyThatMayBeForgottenIsNotRepeated) {
    const auto goes_on_after = [](std::int64_t seconds) {
        TestSaga s("a queue undo | b queue");
        s.dedupe_retention = 1000 * second;
        s.start();
        s.serve("a");
        s.refuse("b");
        s.claim("a", undo);
        s.expire("a", undo);
        s.suspend();
        s.pass(seconds);
        s.resume();
        s.claim("a", undo);
        return s.text();
    };
    EXPECT_EQ(goes_on_after(900), "compensating: ~a claimed");
    EXPECT_EQ(goes_on_after(1000), "parked~ for ~a");

    const auto retried_after = [](std::int64_t seconds) {
        TestSaga s("a queue undo | b queue");
        s.dedupe_retention = 1000 * second;
        s.start();
        s.serve("a");
        s.refuse("b");
        lose_compensation(s, "a");
        EXPECT_EQ(s.text(), "parked~ for ~a");
        s.pass(seconds);
        return s.retry();
    };
    EXPECT_EQ(retried_after(900), "");
    EXPECT_EQ(retried_after(1000), "refused, since a compensation is in doubt for longer than its "
                                   "service remembers the key");
}

TEST(SagaDoubt, WhoLooksWhenTheKeyIsForgottenSeesWhatTheCompensationDid) {
    TestSaga s("a queue undo | b queue");
    s.dedupe_retention = 1000 * second;
    s.start();
    s.serve("a");
    s.refuse("b");
    lose_compensation(s, "a");
    EXPECT_EQ(s.resolve("a", ResolveOutcome::not_done), ""); // the request may still arrive
    EXPECT_FALSE(s.tables.failures.back().outcome_known);
    EXPECT_EQ(s.tables.failures.back().lease, lease_of(s, "a", 2, undo));
    s.pass(1000);
    EXPECT_TRUE(s.retry().starts_with("refused"));
    EXPECT_EQ(s.resolve("a", ResolveOutcome::not_done), "");
    EXPECT_EQ(s.retry(), "");
    EXPECT_EQ(s.text(), "compensating: ~a due");
}

TEST(SagaText, SaysWhatTheStepFailedOfThatAnotherEventParksTheSagaFor) {
    TestSaga s("p queue pivot once, a queue once");
    s.start();
    s.claim("p");
    s.claim("a");
    s.fail("a", FailureClass::non_retryable);
    s.complete("p");
    EXPECT_EQ(s.text(), "parked for a");
    EXPECT_EQ(s.tables.saga.error, s.tables.failures.back().error);
}

// ------------------------------------------------------------------------------------ late answers

TEST(SagaLateAnswer, CountsUntilTheCompensationOfTheStepHasBegun) {
    TestSaga s("a queue undo once | b queue undo");
    s.start();
    s.serve("a");
    s.claim("b");
    s.cancel();
    s.expire("b");
    EXPECT_EQ(s.text(), "parked~ for b"); // only when completed, and nobody knows
    s.answer(s.step("b"), lease_of(s, "b", 1));
    EXPECT_EQ(s.text(), "compensating: ~b due");
    EXPECT_EQ(judge_completion(s.state(), s.step("b"), lease_of(s, "b", 1), {}).outcome,
              AnswerOutcome::being_undone);
}

TEST(SagaLateAnswer, TheSameReportAgainChangesNothing) {
    TestSaga s("a queue");
    s.start();
    s.claim("a");
    s.fail("a", FailureClass::unknown);
    const JudgedAnswer again =
        judge_failure(s.state(), s.step("a"), lease_of(s, "a", 1), FailureClass::unknown, false);
    EXPECT_EQ(again.outcome, AnswerOutcome::accepted_before);
}

TEST(SagaLateAnswer, AReportThatSaysNoMoreThanIsKnownChangesNothing) {
    TestSaga s("a queue verify twice | z queue");
    s.start();
    s.claim("a");
    s.fail("a", FailureClass::unknown);
    s.verify("a", "not_done");
    s.pass(5);
    s.claim("a");
    s.fail("a", FailureClass::unknown);
    s.verify("a", "never");
    EXPECT_EQ(s.text(), "failed");
    for (const int attempt : {1, 2})
        for (const FailureClass report :
             {FailureClass::unknown, FailureClass::retryable, FailureClass::non_retryable})
            EXPECT_EQ(
                judge_failure(s.state(), s.step("a"), lease_of(s, "a", attempt), report, false)
                    .outcome,
                AnswerOutcome::accepted_before);
}

TEST(SagaLateAnswer, WhatIsDoneIsDoneByTheAttemptInDoubt) {
    for (const bool by_verify : {true, false}) {
        TestSaga s("a queue verify | z queue");
        s.start();
        s.claim("a");
        s.fail("a", FailureClass::unknown);
        s.verify("a", "not_done");
        s.pass(5);
        s.claim("a");
        s.fail("a", FailureClass::non_retryable);
        if (by_verify)
            s.verify("a", "done");
        else
            s.resolve("a", ResolveOutcome::done);
        ASSERT_EQ(s.tables.effects.size(), 1U);
        EXPECT_EQ(s.tables.effects[0].lease, lease_of(s, "a", 1));
    }
}

TEST(SagaLateAnswer, AReportThatSaysMoreThanTheFirstOneIsRefused) {
    TestSaga s("a queue twice");
    s.start();
    s.claim("a");
    s.fail("a", FailureClass::retryable);
    EXPECT_EQ(judge_failure(s.state(), s.step("a"), lease_of(s, "a", 1),
                            FailureClass::non_retryable, false)
                  .outcome,
              AnswerOutcome::not_undone);
}

TEST(SagaLateAnswer, ContradictsWhatSettledTheStep) {
    TestSaga s("a queue pivot verify once | z queue");
    s.start();
    s.claim("a");
    s.expire("a");
    s.verify("a", "never");
    EXPECT_EQ(s.text(), "failed");
    const JudgedAnswer judged =
        judge_completion(s.state(), s.step("a"), lease_of(s, "a", 1), std::nullopt);
    EXPECT_EQ(judged.outcome, AnswerOutcome::not_undone);
    EXPECT_TRUE(judged.contradicts);
}

TEST(SagaLateAnswer, FillsTheOutputThatVerifyDidNotKnowOnce) {
    TestSaga s("a queue verify | z queue");
    s.start();
    s.claim("a");
    s.expire("a");
    s.verify("a", "done");
    const Effect &effect = s.tables.effects.at(0);
    EXPECT_EQ(effect.settled_by, SettledBy::verify);
    EXPECT_EQ(effect.lease, lease_of(s, "a", 1));
    const auto judge = [&](bool is_null, SettledBy by) {
        return judge_completion(s.state(), s.step("a"), *effect.lease,
                                EarlierCompletion{false, is_null, by})
            .outcome;
    };
    EXPECT_EQ(judge(true, SettledBy::verify), AnswerOutcome::fills_output);
    EXPECT_EQ(judge(false, SettledBy::verify), AnswerOutcome::other_output);
    EXPECT_EQ(judge(true, SettledBy::answer), AnswerOutcome::other_output);
}

// ------------------------------------------------------------------------------------- who acted

TEST(SagaFallback, WhatItDidItUndoes) {
    TestSaga s("a queue undo fallback once, w signal undo fallback once, v signal undo | z queue");
    s.start();
    s.refuse("a");
    s.serve("a");
    s.signal("v");
    s.pass(60);
    s.run("w"); // its wait ends
    s.serve("w");
    s.refuse("z");
    EXPECT_EQ(s.text(), "compensating: ~a fallback due, ~w fallback due"); // nobody did v
    EXPECT_EQ(s.step("a").queue_of(undo, true), "other");
    EXPECT_TRUE(s.tables.effects.at(0).by_fallback);
}

TEST(SagaFallback, InDoubtIsTriedAgainAsTheFallback) {
    TestSaga s("p queue pivot | a queue fallback once");
    s.start();
    s.serve("p");
    s.refuse("a");
    s.claim("a");
    s.expire("a");
    EXPECT_EQ(s.text(), "parked for a");
    s.retry();
    EXPECT_EQ(s.text(), "running: a fallback due");
}

// ----------------------------------------------------------------------------- pending
// compensation

TEST(SagaRequest, IsVoidWhenTheIrreversibleStepIsDone) {
    TestSaga s("a queue undo | p queue pivot, b queue | z queue; deadline", Writes::at_the_end);
    s.start();
    s.serve("a");
    s.claim("p");
    EXPECT_EQ(s.cancel(), "");
    EXPECT_EQ(s.text(), "running: deadline held, p claimed, b held");
    EXPECT_TRUE(is_cancel_requested(s.state(), Direction::act));
    s.complete("p");
    EXPECT_EQ(s.text(), "running: deadline in 1000, b due");
    EXPECT_FALSE(s.state().row.compensation_requested || s.state().row.error);
    ASSERT_TRUE(s.state().changes.voided_request);
    EXPECT_EQ(s.state().changes.voided_request->request, CompensationRequest::cancel);
}

TEST(SagaRequest, StandsUntilThePivotIsNotDone) {
    TestSaga s("a queue undo | p queue pivot fallback, b queue | z queue");
    s.start();
    s.serve("a");
    s.claim("p");
    s.claim("b");
    s.fail("b", FailureClass::non_retryable);
    s.expire("p");
    EXPECT_EQ(s.text(), "parked for p: p waits");
    EXPECT_EQ(s.resolve("p", ResolveOutcome::not_done),
              "refused, and the step is irreversible and in doubt: what is not seen now may still "
              "happen");
    s.resolve("p", ResolveOutcome::never_done);
    EXPECT_EQ(s.text(), "compensating: ~a due"); // without its fallback
    EXPECT_EQ(s.tables.saga.failed_step, s.step("b").no);
}

TEST(SagaRequest, OfADeadlineThatFallsIntoTheWaitForAChild) {
    TestSaga s("c child pivot eager, b queue; deadline");
    s.start();
    s.run("c");
    s.expire("c"); // between two waits
    s.pass(1000);
    s.run_deadline();
    EXPECT_EQ(s.tables.saga.compensation_requested, CompensationRequest::deadline);
    EXPECT_TRUE(s.children.at(s.step("c").no).is_requested);
    s.child_ends("c", Status::failed);
    EXPECT_EQ(s.text(), "failed");
}

// ----------------------------------------------------------------------------------------- persons

TEST(SagaResolve, WhatAPersonDidAPersonUndoes) {
    TestSaga s("a queue undo | b queue");
    s.start();
    s.resolve("a", ResolveOutcome::done);
    EXPECT_EQ(s.tables.effects.at(0).settled_by, SettledBy::person);
    s.refuse("b");
    EXPECT_EQ(s.text(), "parked~ for ~a");
    EXPECT_TRUE(s.retry().starts_with("refused"));
    EXPECT_EQ(s.resolve("a", ResolveOutcome::done, undo), "");
    EXPECT_EQ(s.text(), "failed");
}

TEST(SagaResolve, BothDirectionsAreOpenWhileTheActIsInDoubt) {
    TestSaga s("a queue undo started once | b queue");
    s.start();
    s.claim("a");
    s.expire("a");
    EXPECT_EQ(s.text(), "compensating: ~a due");
    EXPECT_EQ(s.resolve("a", ResolveOutcome::done),
              "refused, and both the action and the compensation of the step are open");
    EXPECT_EQ(s.resolve("a", ResolveOutcome::done, undo),
              "refused, and it is not known whether the step was done");
    EXPECT_EQ(s.resolve("a", ResolveOutcome::never_done, Direction::act), "");
    EXPECT_EQ(s.text(), "failed"); // which ends the compensation
}

TEST(SagaResolve, WhatNeverHappenedIsNotUndoneAfterTheCompensationOfAnother) {
    TestSaga s("a queue undo started once, c queue undo");
    s.start();
    s.serve("c");
    s.claim("a");
    s.expire("a");
    s.claim("a", undo);
    s.claim("c", undo);
    s.fail("a", FailureClass::non_retryable, undo);
    s.fail("c", FailureClass::non_retryable, undo);
    EXPECT_EQ(s.resolve("a", ResolveOutcome::never_done, Direction::act), "");
    EXPECT_EQ(s.text(), "parked~ for ~c");
    EXPECT_EQ(s.resolve("a", ResolveOutcome::done),
              "refused, and the step neither runs nor waits in this direction");
    EXPECT_EQ(s.retry(), "");
    EXPECT_EQ(s.text(), "compensating: ~c due");
}

TEST(SagaResolve, NotWhileAnAttemptIsUnderItsLease) {
    TestSaga s("a queue");
    s.start();
    s.claim("a");
    EXPECT_EQ(s.resolve("a", ResolveOutcome::done),
              "refused, and an attempt of the step is under its lease");
    s.pass(30);
    EXPECT_EQ(s.resolve("a", ResolveOutcome::done), "");
    EXPECT_EQ(s.text(), "completed");
}

TEST(SagaSuspend, ASuspensionDoesNotCountForTheDeadline) {
    TestSaga s("a queue, b queue; deadline");
    s.start();
    s.claim("a");
    s.pass(10);
    s.suspend();
    s.pass(5000);
    s.resume();
    EXPECT_EQ(s.tables.deadline_at, (2000 + 5000) * second);
    EXPECT_FALSE(s.tables.saga.suspended_at);
}

// ------------------------------------------------------------------------------------------ park

TEST(SagaOnFailure, ParksAtOnceAndGoesOn) {
    TestSaga s("a queue undo | b queue undo parks once, c queue");
    s.start();
    s.serve("a");
    s.refuse("b");
    EXPECT_EQ(s.text(), "parked for b: c held");
    s.retry();
    EXPECT_EQ(s.text(), "running: b due, c due");
    s.refuse("c"); // which does not say so
    EXPECT_EQ(s.text(), "compensating: ~a due");
}

// ---------------------------------------------------------------------------------------- children

TEST(SagaChildren, AParkedChildIsWaitedFor) {
    TestSaga s("c child undo once");
    s.start();
    s.run("c");
    s.children.at(1).status = Status::parked;
    s.expire("c");
    EXPECT_EQ(s.text(), "running: c claimed");
    EXPECT_TRUE(s.tables.failures.empty());
}

TEST(SagaChildren, DecideByWhatTheirAncestorsSay) {
    const auto ancestor = [](Status status, Direction direction, bool is_suspended) {
        return Ancestor{.status = status,
                        .direction = direction,
                        .compensation_requested = {},
                        .is_suspended = is_suspended,
                        .on_failure = OnFailure::compensate};
    };
    TestSaga s("a queue undo | b queue; child");
    s.start();
    note_ancestor(s.state().ancestry, ancestor(Status::suspended, Direction::act, true));
    EXPECT_FALSE(may_begin(s.state(), *s.work("a")));

    TestSaga t("a queue undo | b queue; child");
    t.start();
    t.serve("a");
    t.decide([&](SagaState &saga) {
        note_ancestor(saga.ancestry, ancestor(Status::compensating, undo, false));
        heed_ancestors(saga, "an ancestor compensates");
    });
    EXPECT_EQ(t.text(), "compensating: ~a due");
}

TEST(SagaChildren, AParkedOneCompensatesAsByCancel) {
    TestSaga s("a queue undo | p queue; child");
    s.start();
    s.serve("a");
    s.claim("p");
    s.decide([&](SagaState &saga) {
        step_is_unusable(saga, s.step("p"), *s.work("p"),
                         {.failure_class = FailureClass::retryable,
                          .outcome_known = true,
                          .error = "gone",
                          .since = saga.now});
    });
    EXPECT_EQ(s.text(), "parked for p: p waits");
    s.decide([](SagaState &saga) { compensate_for_parent(saga, "the parent"); });
    EXPECT_EQ(s.text(), "compensating: ~a due");
}

TEST(SagaSignal, IsRefusedWhenNoStepIsLeftForIt) {
    TestSaga s("a queue | s1 signal, s2 signal");
    s.start();
    EXPECT_TRUE(awaits_signal(s.state(), "s"));
    s.signal("s1");
    s.signal("s2");
    EXPECT_FALSE(awaits_signal(s.state(), "s"));
    EXPECT_FALSE(awaits_signal(s.state(), "t"));
}

} // namespace
} // namespace stacksaga::core
