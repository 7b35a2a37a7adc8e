// The rules of one state of the reference model: what follows from what happens to a step.
#pragma once

#include "model.hpp"

namespace stacksaga::property {

/// How an attempt failed.
struct Failing {
    Word word;        ///< retryable, non_retryable or unknown
    bool known;       ///< it is certain that this attempt did nothing
    bool never_done;  ///< ... and that no earlier one did
    bool keeps_lease; ///< it lapsed: its late answer counts
    bool verified;    ///< verify was asked already
    Window since;     ///< a pause counts from here
};

class Rules {
public:
    Rules(const Definition &definition, State &state) : d_(definition), s_(state) {}

    void open_stage(int stage, Window w);
    void attempt_begins();
    void completed(const StepPlan &step, Direction direction, Window w, bool has_output,
                   int output);
    void failed(const StepPlan &step, Direction direction, const Failing &f);
    void lapsed(const StepPlan &step, Direction direction);
    void deadline_passed(Window w);

    Task &task(const StepPlan &step, Direction d) {
        return d == Direction::act ? of(step).act : of(step).compensate;
    }
    StepState &of(const StepPlan &step) { return s_.steps.at(static_cast<size_t>(step.no)); }
    [[nodiscard]] bool is_past_pivot() const;
    [[nodiscard]] bool deadline_counts() const {
        return s_.deadline != 0 && !is_past_pivot() &&
               (s_.status == Status::pending || s_.status == Status::running);
    }
    /// Outputs of the steps that are done, as text of jsonb.
    [[nodiscard]] std::string results() const;

private:
    [[nodiscard]] bool any_live(Direction d) const;
    [[nodiscard]] bool wants_undoing(const StepPlan &step) const;
    void advance(const StepPlan &step, Window w);
    void give_up(const StepPlan &step, Window w);
    void go_back(Window w, int failed_step);
    void undo_next(Window w);
    void settled_on_the_way_back(const StepPlan &step, bool may_have_happened, Window w);
    void compensation_failed(const StepPlan &step, Window w);
    void park(int step, Direction direction);
    void unpark(const StepPlan &step, Direction direction);
    void pause(const StepPlan &step, Direction direction, const Failing &f);

    const Definition &d_;
    State &s_;
};

} // namespace stacksaga::property
