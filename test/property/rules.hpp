// The rules of one state of the reference model: what follows from what happens to a saga.
#pragma once

#include "model.hpp"

namespace stacksaga::property {

/// How an attempt failed.
struct Failing {
    Word word;    ///< retryable, non_retryable or unknown
    Window since; ///< a pause counts from here
};

/// What has to happen before a step is undone.
enum class Undo : uint8_t {
    nothing,
    waits,    ///< its compensation or its verify function is due or under way
    due,      ///< its compensation can begin
    verify,   ///< verify is to be asked whether there is anything to undo
    by_person ///< only a person can say
};

class Rules {
public:
    Rules(const Definition &definition, State &state) : d_(definition), s_(state) {}

    void start(Window w, Time delay);
    /// An attempt begins. The lease is 0 where a function is called.
    void attempt_begins(const StepPlan &step, Direction direction, int64_t lease, Time since);
    void completed(const StepPlan &step, Direction direction, Window w, bool has_output,
                   int output);
    void failed(const StepPlan &step, Direction direction, const Failing &f);
    void lapsed(const StepPlan &step, Direction direction, Window noticed);
    void verified(const StepPlan &step, Finding finding, Window w);
    void deadline_passed(Window w);
    /// A waiting timer or signal step whose time has come.
    void unseen_due(const StepPlan &step, Window w);
    /// A report under the lease of an attempt that was lost before, or was said to be unknown.
    void completed_late(const StepPlan &step, Direction direction, Window w, int output);
    void due_again(const StepPlan &step, Direction direction, Window w);
    void released(const StepPlan &step, Direction direction, bool is_late, Window w);
    void failed_late(const StepPlan &step, Direction direction, Word word, Window w);

    /// The services' answers: what is answered, a status or an SQLSTATE.
    std::string_view take_completion(const StepPlan &step, const Answer &answer, Window w);
    std::string_view take_failure(const StepPlan &step, const Answer &answer, Window w);
    std::string_view take_release(const StepPlan &step, const Answer &answer, Window w);

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
    std::vector<Attempt> &attempts(const StepPlan &step, Direction d) {
        return d == Direction::act ? of(step).acts : of(step).undos;
    }
    /// What is known of the attempt with this lease; null: none had it.
    Attempt *find_attempt(const StepPlan &step, Direction direction, int64_t lease);
    /// The lease is the latest of an attempt in doubt, and its service may still say what became of
    /// it.
    [[nodiscard]] bool takes_late_answer(const StepPlan &step, Direction direction, int64_t lease);
    /// The SQLSTATE for an answer under a lease that does not count.
    std::string_view refusal(const StepPlan &step, Direction direction, int64_t lease);
    /// Outputs of the steps that are done, as text of jsonb.
    [[nodiscard]] std::string results() const;

private:
    [[nodiscard]] Undo undo_of(const StepPlan &step) const;
    [[nodiscard]] bool is_stage_complete(int stage) const;
    [[nodiscard]] bool is_pivot_open() const;
    [[nodiscard]] bool has_acts_in_flight() const;
    [[nodiscard]] bool is_final() const {
        return s_.status == Status::completed || s_.status == Status::failed;
    }
    [[nodiscard]] bool is_parked_for(const StepPlan &step, Direction direction) const {
        return s_.status == Status::parked && s_.parked_step == step.no &&
               s_.parked_direction == direction;
    }
    [[nodiscard]] bool has_attempts_left(const StepPlan &step, Direction direction);
    /// What the saga comes to after an event, which is about `cause`, if about any step.
    void settle(Window w, const StepPlan *cause = nullptr);
    void settle_acting(Window w, const StepPlan *cause);
    void settle_compensating(Window w);
    bool stays_parked_acting() const;
    bool stays_parked_compensating() const;
    void begin_undo(const StepPlan &step, Window w);
    void start_compensation(Window w);
    void open(const StepPlan &step, Window w, int attempts);
    void take_signals(Window w);
    void note_failure(const StepPlan &step, Direction direction, const Failing &f);
    void act_failed(const StepPlan &step, Word word, Window since);
    void undo_failed(const StepPlan &step, Word word, Window since);
    void settle_doubts(const StepPlan &step);
    void fall_back(const StepPlan &step, Window w);
    void give_up(const StepPlan &step, Window w);
    void ask_verify(const StepPlan &step, Window w);
    void park(const StepPlan &step, Direction direction);
    void park_for_undo(const StepPlan &step);
    void pause(const StepPlan &step, Direction direction, Window since);
    [[nodiscard]] bool is_forgotten(const StepPlan &step, Window w) const;
    std::string_view retry_acts(Window w);
    std::string_view retry_undos(Window w);
    std::string_view resolve_act(const StepPlan &step, Action action, Window w);
    std::string_view resolve_undo(const StepPlan &step, Action action, Window w);
    [[nodiscard]] std::string_view status() const { return name_of(s_.status); }

    const Definition &d_;
    State &s_;
};

} // namespace stacksaga::property
