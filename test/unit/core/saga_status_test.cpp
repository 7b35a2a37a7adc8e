// Goal: what each event makes of a saga in each of its states. Method: every pair, against a table
// that was written from the promises, not from the engine.
#include "saga_fixture.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

struct State {
    std::string_view name;
    std::string_view text;
    void (*enter)(TestSaga &s);
};

void enter_running(TestSaga &s) {
    s.start();
    s.serve("a");
    s.claim("b");
}
void enter_compensating(TestSaga &s) {
    enter_running(s);
    s.fail("b", FailureClass::non_retryable);
}
void enter_pivot(TestSaga &s) {
    s.start();
    s.serve("a");
    s.serve("b");
    s.claim("p");
}

constexpr std::array states{
    State{"pending", "pending: a due", [](TestSaga &s) { s.start(); }},
    State{"running", "running: b claimed", enter_running},
    State{"suspended", "suspended: b claimed held",
          [](TestSaga &s) {
              enter_running(s);
              s.suspend();
          }},
    State{"suspended, to compensate", "suspended~",
          [](TestSaga &s) {
              enter_running(s);
              s.suspend();
              s.fail("b", FailureClass::non_retryable);
          }},
    State{"parked, outcome unknown", "parked for p: p waits",
          [](TestSaga &s) {
              enter_pivot(s);
              s.expire("p");
          }},
    State{"parked past the pivot", "parked for z",
          [](TestSaga &s) {
              enter_pivot(s);
              s.complete("p");
              s.refuse("z");
          }},
    State{"compensating", "compensating: ~a due", enter_compensating},
    State{"compensating, waits", "compensating: b claimed",
          [](TestSaga &s) {
              enter_running(s);
              s.cancel();
          }},
    State{"parked, compensation failed", "parked~ for ~a",
          [](TestSaga &s) {
              enter_compensating(s);
              s.refuse("a", Direction::compensate);
          }},
    State{"running, a cancel is pending", "running: p claimed",
          [](TestSaga &s) {
              enter_pivot(s);
              s.cancel();
          }},
    State{"completed", "completed",
          [](TestSaga &s) {
              enter_pivot(s);
              s.complete("p");
              s.serve("z");
          }},
    State{"failed", "failed",
          [](TestSaga &s) {
              s.start();
              s.refuse("a");
          }},
};

/// What becomes of it, by event: "same" when nothing changes, "refused" when nothing may.
struct Expectation {
    std::string_view state;
    std::string_view cancel, suspend, resume, retry, deadline, parent, done, not_done;
};

constexpr std::array expectations{
    Expectation{"pending", "failed", "suspended: a held", "refused", "refused", "failed", "failed",
                "running: b due", "failed"},
    Expectation{"running", "compensating: b claimed", "suspended: b claimed held", "refused",
                "refused", "compensating: b claimed", "compensating: b claimed", "refused",
                "refused"},
    Expectation{"suspended", "compensating: b claimed", "same", "running: b claimed", "refused",
                "same", "suspended~: b claimed held", "refused", "refused"},
    Expectation{"suspended, to compensate", "compensating: ~a due", "same", "compensating: ~a due",
                "refused", "same", "same", "refused", "refused"},
    Expectation{"parked, outcome unknown", "parked for p: p waits", "refused", "refused", "refused",
                "same", "parked for p: p waits", "running: z due", "refused"},
    Expectation{"parked past the pivot", "refused", "refused", "refused", "running: z due", "same",
                "same", "completed", "same"},
    Expectation{"compensating", "same", "suspended~: ~a held", "refused", "refused", "same", "same",
                "failed", "compensating: ~a in 5"},
    Expectation{"compensating, waits", "same", "suspended~: b claimed held", "refused", "refused",
                "same", "same", "refused", "refused"},
    Expectation{"parked, compensation failed", "refused", "refused", "refused",
                "compensating: ~a due", "same", "same", "failed", "same"},
    Expectation{"running, a cancel is pending", "same", "suspended: p claimed held", "refused",
                "refused", "same", "same", "refused", "refused"},
    Expectation{"completed", "refused", "refused", "refused", "refused", "same", "same", "refused",
                "refused"},
    Expectation{"failed", "refused", "refused", "refused", "refused", "same", "same", "refused",
                "refused"},
};

/// An operator settles the first step that can be; why none can, or "".
std::string resolve_first(TestSaga &s, bool is_done) {
    std::string refusal;
    for (const Step &step : s.plan.definition().steps) {
        refusal = s.resolve(step.name, is_done ? ResolveOutcome::done : ResolveOutcome::not_done);
        if (refusal.empty())
            break;
    }
    return refusal;
}

std::string let_deadline_pass(TestSaga &s) {
    s.state().deadline_at = s.now;
    s.run_deadline();
    return "";
}

std::string request_compensation(TestSaga &s) {
    s.decide([](SagaState &saga) { compensate_for_parent(saga, "the parent requests it"); });
    return "";
}

struct Event {
    std::string_view name;
    std::string_view Expectation::*expected;
    std::string (*happen)(TestSaga &s);
};

constexpr std::array events{
    Event{"cancel", &Expectation::cancel, [](TestSaga &s) { return s.cancel(); }},
    Event{"suspend", &Expectation::suspend, [](TestSaga &s) { return s.suspend(); }},
    Event{"resume", &Expectation::resume, [](TestSaga &s) { return s.resume(); }},
    Event{"retry", &Expectation::retry, [](TestSaga &s) { return s.retry(); }},
    Event{"deadline", &Expectation::deadline, let_deadline_pass},
    Event{"the parent's request", &Expectation::parent, request_compensation},
    Event{"resolved as done", &Expectation::done,
          [](TestSaga &s) { return resolve_first(s, true); }},
    Event{"resolved as not done", &Expectation::not_done,
          [](TestSaga &s) { return resolve_first(s, false); }},
};

constexpr const char *four_stages =
    "a queue undo once | b queue undo once | p queue pivot once | z queue once; child";

TEST(SagaStatus, EveryEventInEveryStateDoesWhatTheTableSays) {
    for (std::size_t i = 0; i < states.size(); ++i)
        for (const Event &event : events) {
            SCOPED_TRACE(std::string(event.name) + " while " + std::string(states[i].name));
            ASSERT_EQ(expectations[i].state, states[i].name);
            TestSaga s(four_stages);
            states[i].enter(s);
            ASSERT_EQ(s.text(), states[i].text);
            const std::string before = s.tables.dump();
            const std::string_view expected = expectations[i].*event.expected;
            EXPECT_EQ(event.happen(s).substr(0, 7), expected == "refused" ? "refused" : "");
            const bool changes = expected != "refused" && expected != "same";
            EXPECT_EQ(s.text(), changes ? expected : states[i].text);
            if (expected == "refused") {
                EXPECT_EQ(s.tables.dump(), before);
            }
        }
}

TEST(SagaStatus, AnAttemptBeginsAPendingSagaAndNoOther) {
    for (const State &state : states) {
        TestSaga s(four_stages);
        state.enter(s);
        s.decide([](SagaState &saga) { attempt_begins(saga); });
        EXPECT_EQ(s.text(), state.name == "pending" ? "running: a due" : state.text);
    }
}

TEST(SagaStatus, NothingIsClaimedWhereNothingIsDue) {
    for (const State &state : states)
        for (const std::string_view step : {"a", "b", "p", "z"})
            for (const Direction d : {Direction::act, Direction::compensate}) {
                TestSaga s(four_stages);
                state.enter(s);
                const std::string row =
                    std::string(d == Direction::act ? " " : " ~") + std::string(step) + " due";
                EXPECT_EQ(s.claim(step, d), state.text.find(row) != std::string_view::npos)
                    << step << " while " << state.name;
            }
}

TEST(SagaStatus, OnlyAChildThatHasSettledNotifiesItsParent) {
    for (const State &state : states) {
        TestSaga s(four_stages);
        state.enter(s);
        const bool is_settled = is_final(s.state().row.status);
        EXPECT_EQ(s.tables.parent_notices, is_settled ? 1 : 0) << state.name;
        request_compensation(s); // an ended one answers that it does not compensate
        const int answers = is_final(s.state().row.status) ? 1 : 0;
        EXPECT_EQ(s.tables.parent_notices, answers + (is_settled ? 1 : 0)) << state.name;
    }
}

TEST(SagaStatus, AStatusSaysWhyAndForWhichStep) {
    for (const State &state : states) {
        TestSaga s(four_stages);
        state.enter(s);
        const SagaRow &row = s.tables.saga;
        const bool has_error = !row.error.value_or("").empty();
        const bool goes_well = row.direction == Direction::act && row.status != Status::parked &&
                               !row.compensation_requested;
        EXPECT_EQ(has_error, !goes_well) << state.name;
        EXPECT_EQ(row.parked_step.has_value(), row.status == Status::parked) << state.name;
        EXPECT_EQ(row.parked_direction.has_value(), row.status == Status::parked) << state.name;
        if (goes_well) {
            EXPECT_FALSE(row.failed_step) << state.name;
        }
    }
}

TEST(SagaStatus, ACompletedChildIsUndoneWithItsParent) {
    TestSaga s("a queue undo | b queue; child");
    s.start();
    s.serve("a");
    s.serve("b");
    ASSERT_EQ(s.text(), "completed");
    request_compensation(s);
    EXPECT_EQ(s.text(), "compensating: ~a due");
    EXPECT_EQ(s.tables.saga.error, "the parent requests it");
    s.serve("a", Direction::compensate);
    EXPECT_EQ(s.text(), "failed");
    EXPECT_EQ(s.tables.parent_notices, 2);
}

} // namespace
} // namespace stacksaga::core
