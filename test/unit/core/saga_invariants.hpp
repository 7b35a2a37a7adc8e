// What holds of a saga after every event, whatever the event was.
#pragma once
#include "saga_fixture.hpp"

#include <gtest/gtest.h>

#include <set>

namespace stacksaga::core {

/// What an event starts from.
struct Before {
    SagaRow row;
    std::set<std::int16_t> acts;      ///< the steps whose action has work
    std::set<std::int16_t> fallbacks; ///< the steps whose fallback has
    std::size_t statuses;             ///< how many were written
};

/// Reads the tables of a saga whose changes are written.
class Invariants {
public:
    explicit Invariants(const TestSaga &test) : test_(test), tables_(test.tables) {}

    Before before() const { return {tables_.saga, acts(), fallbacks(), tables_.statuses.size()}; }

    void check(const Before &before) const {
        check_changes(before);
        check_rows();
        for (const std::int16_t no : fallbacks())
            EXPECT_TRUE(before.fallbacks.contains(no) || !is_doubtful(definition().step(no), false))
                << "a fallback for what may have happened";
        switch (tables_.saga.status) {
        case Status::pending:
        case Status::running:
            check_open_stage();
            EXPECT_EQ(tables_.saga.error.has_value(),
                      tables_.saga.compensation_requested.has_value());
            break;
        case Status::suspended:
            for (const Work &w : tables_.work)
                EXPECT_TRUE(w.due_at == never && w.resume_at) << "due while suspended";
            break;
        case Status::completed:
        case Status::failed:
            check_end();
            break;
        case Status::compensating:
        case Status::parked:
            EXPECT_TRUE(tables_.saga.error);
            break;
        }
        const bool is_parked = tables_.saga.status == Status::parked;
        EXPECT_EQ(tables_.saga.parked_step.has_value(), is_parked);
        EXPECT_EQ(tables_.saga.parked_direction.has_value(), is_parked);
        EXPECT_TRUE(is_parked || tables_.saga.suspended_at.has_value() ==
                                     (tables_.saga.status == Status::suspended));
        check_standing_still();
        if (!is_at_rest(tables_.saga.status) && tables_.saga.status != Status::suspended) {
            EXPECT_TRUE(is_awaited()) << "nothing will happen";
        }
    }

private:
    const Definition &definition() const { return test_.plan.definition(); }

    std::set<std::int16_t> acts() const {
        std::set<std::int16_t> steps;
        for (const Work &w : tables_.work)
            if (w.purpose == WorkPurpose::step && w.direction == Direction::act && !w.is_ahead())
                steps.insert(w.step_no);
        return steps;
    }
    std::set<std::int16_t> fallbacks() const {
        std::set<std::int16_t> steps;
        for (const Work &w : tables_.work)
            if (w.falling_back)
                steps.insert(w.step_no);
        return steps;
    }
    bool is_done(const Step &s, Direction d) const {
        return std::any_of(tables_.effects.begin(), tables_.effects.end(),
                           [&](const Effect &e) { return e.step_no == s.no && e.direction == d; });
    }
    bool has_failed(const Step &s, Direction d) const {
        return std::any_of(
            tables_.failures.begin(), tables_.failures.end(),
            [&](const StoredFailure &f) { return f.step_no == s.no && f.direction == d; });
    }
    bool is_doubtful(const Step &s) const { return is_doubtful(s, false) || is_doubtful(s, true); }
    bool is_doubtful(const Step &s, bool by_fallback) const {
        return !is_done(s, Direction::act) &&
               std::any_of(tables_.failures.begin(), tables_.failures.end(),
                           [&](const StoredFailure &f) {
                               return f.step_no == s.no && f.direction == Direction::act &&
                                      !f.outcome_known && f.by_fallback == by_fallback;
                           });
    }
    bool was_done_by_fallback(const Step &s) const {
        return std::any_of(tables_.effects.begin(), tables_.effects.end(), [&](const Effect &e) {
            return e.step_no == s.no && e.direction == Direction::act && e.by_fallback;
        });
    }
    /// What a step waits for in itself leaves nothing to undo.
    bool is_to_be_undone(const Step &s) const {
        const bool waits = s.waits_for() == StepWait::signal || s.waits_for() == StepWait::time;
        return s.compensable && (is_doubtful(s) || (is_done(s, Direction::act) &&
                                                    (!waits || was_done_by_fallback(s))));
    }

    /// A saga that stands still begins nothing.
    void check_standing_still() const {
        const bool stands =
            tables_.saga.status == Status::parked || tables_.saga.compensation_requested;
        for (const Work &w : tables_.work) {
            const bool is_claimable =
                w.purpose == WorkPurpose::step &&
                definition().step(w.step_no).queue_of(w.direction, w.falling_back);
            EXPECT_FALSE(stands && is_claimable && !w.is_claimed() && !w.verifying &&
                         w.due_at != never)
                << "a step of a saga that stands still can be claimed";
        }
    }

    /// Statuses pass as the transitions allow, which writing has checked, and no longer way than
    /// they need; why compensation has begun is kept; nothing acts once compensation has begun.
    void check_changes(const Before &before) const {
        const SagaRow *earlier = nullptr;
        SagaRow last = before.row;
        for (std::size_t i = before.statuses; i < tables_.statuses.size(); ++i) {
            const SagaRow &row = tables_.statuses[i];
            if (last.direction == Direction::compensate) {
                EXPECT_EQ(row.error, last.error);
                EXPECT_EQ(row.failed_step.value_or(0),
                          last.failed_step.value_or(row.failed_step.value_or(0)));
            }
            if (earlier != nullptr && earlier->status != row.status) {
                EXPECT_FALSE(may_change(earlier->status, earlier->direction, row.status,
                                        row.direction, test_.plan.is_child()))
                    << "two changes that are one";
            }
            earlier = i == before.statuses ? &before.row : &tables_.statuses[i - 1];
            last = row;
        }
        if (tables_.saga.direction == Direction::act)
            return;
        for (const Work &w : tables_.work)
            if (w.purpose == WorkPurpose::step && w.direction == Direction::act && !w.is_ahead()) {
                EXPECT_TRUE(before.acts.contains(w.step_no) || w.verifying)
                    << "an action is added to a saga that compensates";
                check_child_is_asked(w.step_no);
            }
        for (const Step &s : definition().steps)
            EXPECT_FALSE(s.irreversible &&
                         (is_done(s, Direction::act) || is_doubtful(s) || acts().contains(s.no)))
                << "compensates past " << s.name;
    }

    /// A saga that compensates waits for an action: if that is a child, it is to compensate too.
    void check_child_is_asked(std::int16_t no) const {
        const auto child = test_.children.find(no);
        if (child != test_.children.end() && !fallbacks().contains(no)) {
            EXPECT_TRUE(child->second.is_requested || is_final(child->second.status));
        }
    }

    void check_rows() const {
        std::set<std::pair<std::int16_t, Direction>> seen;
        for (const Work &w : tables_.work) {
            EXPECT_TRUE(seen.emplace(w.step_no, w.direction).second) << "two rows";
            EXPECT_GE(w.attempt, w.attempt_base);
            if (w.purpose == WorkPurpose::deadline)
                continue;
            if (w.is_ahead()) {
                EXPECT_FALSE(w.direction == Direction::act &&
                             tables_.saga.direction == Direction::compensate)
                    << "an action that will have no turn";
            }
            const Step &step = definition().step(w.step_no);
            EXPECT_FALSE(is_done(step, w.direction)) << "work for what is done";
            for (const StoredFailure &f : tables_.failures)
                if (f.step_no == w.step_no && f.direction == w.direction) {
                    EXPECT_GE(w.attempt, f.attempt) << "attempts are counted twice";
                }
            if (w.direction == Direction::compensate && !w.is_ahead())
                check_order(step);
        }
    }

    /// A compensation has work: everything after it is undone or given up, and nothing acts.
    void check_order(const Step &step) const {
        EXPECT_EQ(tables_.saga.direction, Direction::compensate);
        for (const Work &w : tables_.work) {
            EXPECT_FALSE(w.purpose == WorkPurpose::step && w.direction == Direction::act &&
                         w.is_claimed())
                << "compensates while an action is under way";
        }
        EXPECT_TRUE(step.compensable);
        for (const Step &later : definition().steps) {
            if (later.stage <= step.stage || !is_to_be_undone(later))
                continue;
            EXPECT_TRUE(is_done(later, Direction::compensate) ||
                        (definition().continue_compensating &&
                         (has_failed(later, Direction::compensate) || needs_person(later))))
                << step.name << " is undone before " << later.name;
        }
    }

    /// A person did it, or it was decided only after others whether it was done.
    bool needs_person(const Step &s) const {
        return has_failed(s, Direction::act) || // it may have been in doubt
               std::any_of(tables_.effects.begin(), tables_.effects.end(), [&](const Effect &e) {
                   return e.step_no == s.no && e.settled_by == SettledBy::person;
               });
    }

    /// Every step of the open stage is done or has work, and no step of another stage has.
    void check_open_stage() const {
        auto open = static_cast<std::int16_t>(definition().stages + 1);
        for (const Step &s : definition().steps)
            if (!is_done(s, Direction::act))
                open = std::min(open, s.stage);
        EXPECT_LE(open, definition().stages) << "runs with nothing left to do";
        const std::set<std::int16_t> with_work = acts();
        for (const Step &s : definition().steps)
            if (with_work.contains(s.no) || !tables_.saga.compensation_requested) {
                EXPECT_EQ(with_work.contains(s.no), s.stage == open && !is_done(s, Direction::act))
                    << s.name;
            }
    }

    void check_end() const {
        EXPECT_TRUE(tables_.work.empty()) << "work of a saga that has ended";
        for (const Step &s : definition().steps)
            if (tables_.saga.status == Status::completed) {
                EXPECT_TRUE(is_done(s, Direction::act)) << s.name;
            } else if (is_to_be_undone(s)) {
                EXPECT_TRUE(is_done(s, Direction::compensate)) << s.name << " is not undone";
            }
        EXPECT_EQ(tables_.notices_removed, definition().has_children);
    }

    bool is_awaited() const {
        return std::any_of(tables_.work.begin(), tables_.work.end(), [&](const Work &w) {
            if (w.purpose != WorkPurpose::step)
                return false;
            const bool waits_for_signal =
                definition().step(w.step_no).waits_for() == StepWait::signal && w.started_at;
            return w.is_claimed() || w.due_at != never ||
                   (waits_for_signal && !tables_.saga.compensation_requested);
        });
    }

    const TestSaga &test_;
    const Tables &tables_;
};

} // namespace stacksaga::core
