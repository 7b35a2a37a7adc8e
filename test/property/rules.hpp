// The rules of one state of the reference model: what follows from what happens to a saga.
#pragma once

#include "model.hpp"

namespace stacksaga::property {

/// How an attempt failed.
struct Failing {
    Word word;    ///< retryable, non_retryable or unknown
    bool is_lost; ///< nothing was heard: it may have happened
    Window since; ///< a pause counts from here
    [[nodiscard]] bool is_in_doubt() const { return is_lost || word == Word::unknown; }
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
    void verified(const StepPlan &step, Finding finding, Window w);
    void deadline_passed(Window w);
    /// A waiting timer or signal step whose time has come.
    void unseen_due(const StepPlan &step, Window w);
    /// A failure under the lease of an attempt that was lost before: it had no effect.
    void settled_late(const StepPlan &step, Word word, Window w);

    /// The operators' calls: what is answered, a status or an SQLSTATE.
    std::string_view cancel(Window w);
    std::string_view suspend(Window w);
    std::string_view resume(Window w);
    std::string_view retry(Window w);
    std::string_view resolve(const StepPlan &step, Action action, Window w);
    std::string_view signal(const StepPlan &step, int message, Window w);

    Task &task(const StepPlan &step, Direction d) {
        return d == Direction::act ? of(step).act : of(step).compensate;
    }
    StepState &of(const StepPlan &step) { return s_.steps.at(static_cast<size_t>(step.no)); }
    [[nodiscard]] const StepState &of(const StepPlan &step) const {
        return s_.steps.at(static_cast<size_t>(step.no));
    }
    [[nodiscard]] bool is_past_pivot() const;
    [[nodiscard]] bool is_in_doubt(const StepPlan &step) const {
        return !of(step).done && of(step).doubts != 0;
    }
    /// Nothing of the saga begins in this direction.
    [[nodiscard]] bool is_held(Direction d) const {
        return s_.suspended || s_.status == Status::parked ||
               (d == Direction::act && s_.request != Request::none);
    }
    [[nodiscard]] bool deadline_counts() const {
        return s_.deadline != 0 && !is_past_pivot() && !s_.suspended &&
               s_.request == Request::none && s_.direction == Direction::act &&
               (s_.status == Status::pending || s_.status == Status::running);
    }
    /// Its latest attempt was lost, and its service may still say what became of it.
    [[nodiscard]] bool takes_late_answer(const StepPlan &step, int64_t lease) const;
    /// Outputs of the steps that are done, as text of jsonb.
    [[nodiscard]] std::string results() const;

private:
    [[nodiscard]] bool is_to_be_undone(const StepPlan &step) const;
    [[nodiscard]] bool is_stage_complete(int stage) const;
    [[nodiscard]] bool is_pivot_open() const;
    [[nodiscard]] bool is_final() const {
        return s_.status == Status::completed || s_.status == Status::failed;
    }
    /// What the saga comes to after an event.
    void settle(Window w);
    void settle_acting(Window w);
    void settle_compensating(Window w);
    bool undo_stage(int stage, Window w);
    void start_compensation(Window w);
    void open(const StepPlan &step, Window w, int attempts);
    void take_signals(Window w);
    void fall_back(const StepPlan &step, Window w);
    void give_up(const StepPlan &step, Window w);
    void ask_verify(const StepPlan &step, Window w);
    void park(int step, Direction direction);
    void pause(const StepPlan &step, Direction direction, Window since);
    bool begin_again(const StepPlan &step, Window w);
    std::string_view resolve_act(const StepPlan &step, Action action, Window w);
    std::string_view resolve_undo(const StepPlan &step, Action action, Window w);
    [[nodiscard]] std::string_view status() const { return name_of(s_.status); }

    const Definition &d_;
    State &s_;
};

} // namespace stacksaga::property
