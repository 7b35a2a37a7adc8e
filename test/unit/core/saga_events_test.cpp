// Goal: what each event of a step makes of a saga in each of its states: answers, a lease that runs
// out, a signal, the end of a child, a timer. (saga_status_test.cpp has the events of a whole
// saga.) Method: every pair, against a table that was written from the promises, not from the
// engine.
#include "saga_fixture.hpp"
#include "saga_invariants.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

// The second stage waits for a service, a signal, a child, a time and for a service that cannot be
// undone.
constexpr const char *all_kinds =
    "a queue undo once | b queue undo twice, g signal, k child undo, t timer, p queue pivot once";

struct State {
    std::string_view name;
    std::string_view text;
    void (*enter)(TestSaga &s);
};

void enter_running(TestSaga &s) {
    s.start();
    s.serve("a");
    s.claim("b");
    s.run("k");
}
void enter_suspended(TestSaga &s) {
    enter_running(s);
    s.suspend();
}
void enter_waiting(TestSaga &s) {
    enter_running(s);
    s.cancel();
}
void enter_compensating(TestSaga &s) {
    enter_waiting(s);
    s.fail("b", FailureClass::non_retryable);
    s.child_ends("k", Status::failed);
}

constexpr std::array states{
    State{"pending", "pending: a due", [](TestSaga &s) { s.start(); }},
    State{"running", "running: b claimed, g in 60, k claimed, t in 10, p due", enter_running},
    State{"suspended", "suspended: b claimed held, g held, k claimed held, t held, p held",
          enter_suspended},
    State{"suspended, to compensate", "suspended~: b claimed held, k claimed held",
          [](TestSaga &s) {
              enter_suspended(s);
              s.decide([](SagaState &saga) { compensate_for_parent(saga, "the parent"); });
          }},
    State{"parked, outcome unknown",
          "parked for p: b claimed, g in 60, k claimed, t in 10, p waits",
          [](TestSaga &s) {
              enter_running(s);
              s.claim("p");
              s.fail("p", FailureClass::unknown);
          }},
    State{"parked past the pivot", "parked for b: g in 60, k claimed, t in 10",
          [](TestSaga &s) {
              enter_running(s);
              s.serve("p");
              s.fail("b", FailureClass::non_retryable);
          }},
    State{"a compensation is pending", "running: b claimed, g in 60, k claimed, t in 10, p claimed",
          [](TestSaga &s) {
              enter_running(s);
              s.claim("p");
              s.cancel();
          }},
    State{"compensating, waits", "compensating: b claimed, k claimed", enter_waiting},
    State{"compensating", "compensating: ~a due", enter_compensating},
    State{"parked, compensation failed", "parked~ for ~a",
          [](TestSaga &s) {
              enter_compensating(s);
              s.refuse("a", Direction::compensate);
          }},
    State{"completed", "completed",
          [](TestSaga &s) {
              enter_running(s);
              s.complete("b");
              s.signal("g");
              s.child_ends("k", Status::completed);
              s.pass(10);
              s.run("t");
              s.serve("p");
          }},
    State{"failed", "failed",
          [](TestSaga &s) {
              enter_compensating(s);
              s.serve("a", Direction::compensate);
          }},
};

/// What becomes of it, by event: "same" when nothing changes; "lost" and "not undone" when an
/// answer is refused.
struct Expectation {
    std::string_view state;
    std::string_view done, retryable, non_retryable, unknown, lease_over;
    std::string_view signal, child_done, child_failed, time;
};

constexpr std::array expectations{
    Expectation{"pending", "lost", "lost", "lost", "lost", "same", "same", "same", "same", "same"},
    Expectation{"running", "running: g in 60, k claimed, t in 10, p due",
                "running: b in 5, g in 60, k claimed, t in 10, p due", "compensating: k claimed",
                "running: b in 5, g in 60, k claimed, t in 10, p due",
                "running: b in 5, g in 30, k claimed, t due, p due",
                "running: b claimed, k claimed, t in 10, p due",
                "running: b claimed, g in 60, t in 10, p due", "compensating: b claimed",
                "running: b claimed, g in 50, k claimed, p due"},
    Expectation{
        "suspended", "suspended: g held, k claimed held, t held, p held",
        "suspended: b held, g held, k claimed held, t held, p held", "suspended~: k claimed held",
        "suspended: b held, g held, k claimed held, t held, p held", "same", "same",
        "suspended: b claimed held, g held, t held, p held", "suspended~: b claimed held", "same"},
    Expectation{"suspended, to compensate", "suspended~: k claimed held",
                "suspended~: k claimed held", "suspended~: k claimed held",
                "suspended~: k claimed held", "same", "same", "suspended~: b claimed held",
                "suspended~: b claimed held", "same"},
    Expectation{"parked, outcome unknown", "parked for p: g in 60, k claimed, t in 10, p waits",
                "parked for p: b held, g in 60, k claimed, t in 10, p waits",
                "parked for p: g in 60, k claimed, t in 10, p waits",
                "parked for p: b held, g in 60, k claimed, t in 10, p waits",
                "parked for p: b held, g in 30, k claimed, t due, p waits",
                "parked for p: b claimed, k claimed, t in 10, p waits",
                "parked for p: b claimed, g in 60, t in 10, p waits",
                "parked for p: b claimed, g in 60, t in 10, p waits",
                "parked for p: b claimed, g in 50, k claimed, p waits"},
    Expectation{"parked past the pivot", "not undone", "same", "same", "same", "same",
                "parked for b: k claimed, t in 10", "parked for b: g in 60, t in 10",
                "parked for b: g in 60, t in 10", "parked for b: g in 50, k claimed"},
    Expectation{"a compensation is pending", "running: g in 60, k claimed, t in 10, p claimed",
                "running: b held, g in 60, k claimed, t in 10, p claimed",
                "running: g in 60, k claimed, t in 10, p claimed",
                "running: b held, g in 60, k claimed, t in 10, p claimed",
                "running: b held, g in 30, k claimed, t due, p claimed",
                "running: b claimed, k claimed, t in 10, p claimed",
                "running: b claimed, g in 60, t in 10, p claimed",
                "running: b claimed, g in 60, t in 10, p claimed",
                "running: b claimed, g in 50, k claimed, p claimed"},
    Expectation{"compensating, waits", "compensating: k claimed", "compensating: k claimed",
                "compensating: k claimed", "compensating: k claimed", "compensating: k claimed",
                "same", "compensating: b claimed", "compensating: b claimed", "same"},
    Expectation{"compensating", "not undone", "same", "same", "same", "same", "same", "same",
                "same", "same"},
    Expectation{"parked, compensation failed", "not undone", "same", "same", "same", "same", "same",
                "same", "same", "same"},
    Expectation{"completed", "same", "not undone", "not undone", "same", "same", "same", "same",
                "same", "same"},
    Expectation{"failed", "not undone", "same", "same", "same", "same", "same", "same", "same",
                "same"},
};
static_assert(states.size() == expectations.size());

/// How the service that claimed b, or believes that it did, is answered.
AnswerOutcome judge(TestSaga &s) {
    const Step &step = s.step("b");
    const std::int64_t lease = make_lease(1, Direction::act, static_cast<std::uint64_t>(step.no));
    std::optional<EarlierCompletion> earlier;
    for (const Effect &e : s.tables.effects)
        if (e.step_no == step.no && e.lease == lease)
            earlier = EarlierCompletion{
                .is_same_output = true, .is_output_null = false, .settled_by = SettledBy::answer};
    return judge_completion(s.state(), step, lease, earlier).outcome;
}

/// Why an answer is refused, or "".
std::string_view refusal_of(AnswerOutcome outcome) {
    switch (outcome) {
    case AnswerOutcome::lease_lost:
        return "lost";
    case AnswerOutcome::not_undone:
        return "not undone";
    case AnswerOutcome::being_undone:
        return "being undone";
    default:
        return "";
    }
}

std::string_view complete(TestSaga &s) {
    const AnswerOutcome outcome = judge(s);
    if (outcome == AnswerOutcome::accept)
        s.complete("b");
    return refusal_of(outcome);
}

template <FailureClass failure_class> std::string_view fail(TestSaga &s) {
    const Step &step = s.step("b");
    const std::int64_t lease = make_lease(1, Direction::act, static_cast<std::uint64_t>(step.no));
    const bool was_completed = judge(s) == AnswerOutcome::accepted_before;
    const AnswerOutcome outcome =
        judge_failure(s.state(), step, lease, failure_class, was_completed).outcome;
    if (outcome == AnswerOutcome::accept)
        s.fail("b", failure_class);
    return refusal_of(outcome);
}

template <Status status> std::string_view child_ends(TestSaga &s) {
    if (s.children.contains(s.step("k").no))
        s.child_ends("k", status);
    else
        s.decide([&](SagaState &saga) { child_settled(saga, s.step("k"), std::nullopt); });
    return "";
}

std::string_view settle_lease(TestSaga &s) {
    s.decide([&](SagaState &saga) { settle_claim(saga, s.step("b"), Direction::act, 0.5); });
    return "";
}

/// A worker that found the row runs it if it is still due.
std::string_view run_timer(TestSaga &s) {
    const std::optional<Work> row = s.work("t");
    if (row && row->due_at <= s.now)
        s.run("t");
    return "";
}

struct Event {
    std::string_view name;
    std::string_view Expectation::*expected;
    std::int64_t after;                      ///< seconds
    std::string_view (*happen)(TestSaga &s); ///< returns why it is refused, or ""
};

constexpr std::array events{
    Event{"done", &Expectation::done, 0, complete},
    Event{"a retryable failure", &Expectation::retryable, 0, fail<FailureClass::retryable>},
    Event{"a final failure", &Expectation::non_retryable, 0, fail<FailureClass::non_retryable>},
    Event{"an unknown outcome", &Expectation::unknown, 0, fail<FailureClass::unknown>},
    Event{"the end of the lease", &Expectation::lease_over, 30, settle_lease},
    Event{"the signal", &Expectation::signal, 0,
          [](TestSaga &s) {
              s.signal("g");
              return std::string_view{};
          }},
    Event{"the end of the child", &Expectation::child_done, 0, child_ends<Status::completed>},
    Event{"the child's failure", &Expectation::child_failed, 0, child_ends<Status::failed>},
    Event{"the time of the timer", &Expectation::time, 10, run_timer},
};

TEST(SagaEvents, EveryEventOfAStepInEveryStateDoesWhatTheTableSays) {
    for (std::size_t i = 0; i < states.size(); ++i)
        for (const Event &event : events) {
            SCOPED_TRACE(std::string(event.name) + " while " + std::string(states[i].name));
            ASSERT_EQ(expectations[i].state, states[i].name);
            TestSaga s(all_kinds);
            states[i].enter(s);
            ASSERT_EQ(s.text(), states[i].text);
            s.pass(event.after);
            const std::string text = s.text();
            const std::string rows = s.tables.dump();
            const Invariants invariants(s);
            const Before before = invariants.before();
            const std::string_view expected = expectations[i].*event.expected;
            const bool is_refused =
                expected == "lost" || expected == "not undone" || expected == "being undone";
            EXPECT_EQ(event.happen(s), is_refused ? expected : "");
            EXPECT_EQ(s.text(), is_refused || expected == "same" ? text : expected);
            // A signal is kept for the step that may still wait for it.
            if ((is_refused || expected == "same") && event.expected != &Expectation::signal) {
                EXPECT_EQ(s.tables.dump(), rows);
            }
            invariants.check(before);
        }
}

TEST(SagaEvents, TheFirstCompletionUnderALeaseStays) {
    for (const State &state : states) {
        TestSaga s(all_kinds);
        state.enter(s);
        const std::string rows = s.tables.dump();
        for (const bool is_same : {true, false})
            EXPECT_EQ(judge_completion(s.state(), s.step("b"), 1,
                                       EarlierCompletion{is_same, false, SettledBy::answer})
                          .outcome,
                      is_same ? AnswerOutcome::accepted_before : AnswerOutcome::other_output)
                << state.name;
        EXPECT_EQ(s.tables.dump(), rows);
    }
}

} // namespace
} // namespace stacksaga::core
