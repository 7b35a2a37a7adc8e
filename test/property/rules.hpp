// The rules of one state of the reference model: what follows from what happens to a saga.
#pragma once

#include "model.hpp"

namespace stacksaga::property {

/// How an attempt failed.
struct Failing {
    Word word;        ///< retryable, non_retryable or unknown
    bool known;       ///< it is certain that this attempt did nothing
    bool never_done;  ///< ... and that no earlier one did
    bool keeps_lease; ///< it lapsed: an answer that still comes counts
    bool verified;    ///< verify was asked already
    Window since;     ///< a pause counts from here
};

class Rules {
public:
    Rules(const Definition &definition, State &state) : d_(definition), s_(state) {}

    void start(Window w, Time delay);
    void attempt_begins();
    void completed(const StepPlan &step, Direction direction, Window w, bool has_output,
                   int output);
    void failed(const StepPlan &step, Direction direction, const Failing &f);
    void lapsed(const StepPlan &step, Direction direction);
    void deadline_passed(Window w);
    /// A waiting timer or signal step whose time has come.
    void unseen_due(const StepPlan &step, Window w);

    /// The operators' calls: what is answered, a status or an SQLSTATE.
    std::string_view cancel(Window w);
    std::string_view suspend();
    std::string_view resume(Window w);
    std::string_view retry(Window w);
    std::string_view resolve(const StepPlan &step, bool done, Window w);
    std::string_view signal(const StepPlan &step, int message, Window w);

    Task &task(const StepPlan &step, Direction d) {
        return d == Direction::act ? of(step).act : of(step).compensate;
    }
    StepState &of(const StepPlan &step) { return s_.steps.at(static_cast<size_t>(step.no)); }
    [[nodiscard]] const StepState &of(const StepPlan &step) const {
        return s_.steps.at(static_cast<size_t>(step.no));
    }
    [[nodiscard]] bool is_past_pivot() const;
    [[nodiscard]] bool deadline_counts() const {
        return s_.deadline != 0 && !is_past_pivot() && find_unsettled() == nullptr &&
               s_.direction == Direction::act &&
               (s_.status == Status::pending || s_.status == Status::running);
    }
    /// Outputs of the steps that are done, as text of jsonb.
    [[nodiscard]] std::string results() const;

private:
    [[nodiscard]] bool any_live(Direction d) const;
    [[nodiscard]] bool wants_undoing(const StepPlan &step) const;
    [[nodiscard]] bool is_stage_complete(int stage) const;
    [[nodiscard]] bool is_final() const {
        return s_.status == Status::completed || s_.status == Status::failed;
    }
    [[nodiscard]] bool waits_for(const StepPlan &step, Direction direction) const {
        return s_.status == Status::parked && s_.direction == Direction::act &&
               direction == Direction::act && s_.parked_step == step.no;
    }
    [[nodiscard]] bool is_unsettled(const StepPlan &step) const;
    [[nodiscard]] const StepPlan *find_unsettled() const;
    [[nodiscard]] bool another_pivot_stands(const StepPlan &step) const;
    void open(const StepPlan &step, Window w, int attempts);
    void open_stage(int stage, Window w);
    void take_signals(Window w);
    void advance(const StepPlan &step, Window w);
    void unpark(const StepPlan &settled, Window w);
    [[nodiscard]] bool may_fall_back(const StepPlan &step, const Failing &f) const;
    void fall_back(const StepPlan &step, const Failing &f);
    void give_up(const StepPlan &step, Window w);
    void start_compensation(Window w, int failed_step);
    void undo_next(Window w);
    void settled_while_compensating(const StepPlan &step, bool may_have_happened, Window w);
    void undone(Window w);
    void compensation_failed(const StepPlan &step, Window w);
    void park(int step, Direction direction);
    void pause(const StepPlan &step, Direction direction, const Failing &f);
    void continue_forward(Window w);
    void continue_back(Window w);
    std::string_view status() const { return name_of(s_.status); }

    const Definition &d_;
    State &s_;
};

} // namespace stacksaga::property
