#include "core/saga_operators.hpp"

#include "core/saga_compensation.hpp"

namespace stacksaga::core {

namespace {

constexpr std::string_view final_hint = "It has ended; saga_timeline() shows what happened to it.";

/// The saga waits for an operator's word on an irreversible step.
bool waits_for_word_on_pivot(SagaState &saga) {
    return saga.row.status == Status::parked && saga.row.parked_step &&
           is_doubtful(saga, *saga.row.parked_step) &&
           saga.definition->step(*saga.row.parked_step).irreversible;
}

std::optional<Refusal> cancel_while_compensating(SagaState &saga) {
    if (saga.row.status == Status::parked)
        return Refusal{", after its compensation began",
                       "Use retry_saga() or resolve_step() for the compensation that failed."};
    if (saga.is_suspended())
        continue_saga(saga);
    return std::nullopt;
}

/// An irreversible step that completed after compensation had begun, and so parked the saga.
bool is_done_while_compensating(SagaState &saga, const Step &step) {
    return saga.row.status == Status::parked && !saga.acts() &&
           saga.row.parked_direction == Direction::act && saga.row.parked_step == step.no &&
           has_acted(saga, step.no);
}

/// Whether an irreversible step besides this one was done, or may have been.
bool another_pivot_stands(SagaState &saga, const Step &step) {
    return std::any_of(saga.definition->steps.begin(), saga.definition->steps.end(),
                       [&](const Step &s) {
                           return s.irreversible && s.no != step.no &&
                                  (has_acted(saga, s.no) || is_doubtful(saga, s.no));
                       });
}

/// A step of a saga that compensates was not done after all. If the saga was parked for it, the
/// compensation continues.
void settle_while_compensating(SagaState &saga, const Step &step) {
    settle_outcomes(saga, step.no, Direction::act);
    if (!work_remains(saga, Direction::act) && !another_pivot_stands(saga, step))
        compensate_next(saga);
}

/// The step failed for good in this direction, and the saga is parked without its being due.
bool is_failed_and_parked(SagaState &saga, const Step &step, Direction direction) {
    const bool is_done =
        direction == Direction::act ? has_acted(saga, step.no) : has_compensated(saga, step.no);
    return saga.row.status == Status::parked && !is_done &&
           last_failed_attempt(saga, step.no, direction) > 0 &&
           (direction == Direction::compensate || saga.row.parked_direction == Direction::act);
}

Work failed_attempt(const Step &step, Direction direction, std::int32_t attempt) {
    return {.step_no = step.no, .direction = direction, .due_at = 0, .attempt = attempt};
}

} // namespace

std::optional<Refusal> cancel_saga(SagaState &saga, std::string_view error) {
    if (is_final(saga.row.status))
        return Refusal{"", final_hint};
    if (!saga.acts())
        return cancel_while_compensating(saga);
    if (waits_for_word_on_pivot(saga))
        return Refusal{", since the outcome of an irreversible step is not known",
                       "Say with resolve_step() whether the step was done."};
    if (is_past_pivot(saga))
        return Refusal{", past an irreversible step",
                       "Let it complete; retry_saga() and resolve_step() continue a parked saga."};
    if (saga.is_suspended()) {
        release_work(saga);
        saga.row.status = Status::running; // so that it compensates now; never written
    }
    begin_compensation(saga, nullptr, error);
    return std::nullopt;
}

std::optional<Refusal> suspend_saga(SagaState &saga) {
    if (saga.is_suspended())
        return std::nullopt;
    if (is_final(saga.row.status))
        return Refusal{"", final_hint};
    if (saga.row.status == Status::parked)
        return Refusal{"", "It waits for an operator already."};
    hold_work(saga);
    change_status(saga, saga.row.direction, {.to = Status::suspended});
    return std::nullopt;
}

std::optional<Refusal> resume_saga(SagaState &saga, std::int64_t delay) {
    if (!saga.is_suspended())
        return Refusal{", not suspended", saga.row.status == Status::parked
                                              ? "Use retry_saga() for a parked saga."
                                              : "Only suspend_saga() stops a saga."};
    continue_saga(saga);
    delay_steps(saga, delay);
    return std::nullopt;
}

std::optional<Refusal> retry_saga(SagaState &saga, std::int64_t delay) {
    if (saga.row.status != Status::parked)
        return Refusal{", not parked",
                       "retry_saga() is for parked sagas; the others retry by their policies."};
    // A step that only waits for a late answer keeps its row, and becomes claimable again.
    if (saga.acts())
        for (const Step &s : saga.definition->steps)
            if (s.waits_for() != StepWait::signal && is_kept(saga, s.no))
                start_counting_anew(saga, *find_work(saga, s.no, Direction::act));
    continue_saga(saga);
    delay_steps(saga, delay);
    return std::nullopt;
}

bool is_settled_by_child(SagaState &saga, const Step &step, bool child_stands) {
    if (step.waits_for() != StepWait::child || find_work(saga, step.no, Direction::compensate))
        return false;
    if (const std::optional<Work> work = find_work(saga, step.no, Direction::act))
        return !work->falling_back;
    return child_stands && !is_failed_and_parked(saga, step, Direction::compensate) &&
           is_failed_and_parked(saga, step, Direction::act);
}

std::optional<Work> find_unsettled(SagaState &saga, const Step &step) {
    for (const Direction d : {Direction::compensate, Direction::act})
        if (const std::optional<Work> work = find_work(saga, step.no, d))
            return work;
    for (const Direction d : {Direction::compensate, Direction::act})
        if (is_failed_and_parked(saga, step, d))
            return failed_attempt(step, d, last_failed_attempt(saga, step.no, d));
    if (is_done_while_compensating(saga, step))
        return failed_attempt(step, Direction::act, 1);
    return std::nullopt;
}

namespace {

/// The attempt that an operator's word settles.
Work resolved_attempt(const Work &unsettled, bool is_done, std::string_view role) {
    Work work = unsettled;
    if (is_done && !work.is_claimed()) // what failed stays in the history
        ++work.attempt;
    work.attempt = std::max(work.attempt, 1);
    work.worker = role;
    return work;
}

} // namespace

void resolve_as_done(SagaState &saga, const Step &step, const Work &unsettled, Value output,
                     std::string_view role) {
    if (saga.acts())
        attempt_begins(saga);
    if (!is_done_while_compensating(saga, step)) // which was known
        step_completed(saga, step, resolved_attempt(unsettled, true, role), output);
}

void resolve_as_not_done(SagaState &saga, const Step &step, const Work &unsettled,
                         std::string_view error, std::string_view role, double random) {
    const Work work = resolved_attempt(unsettled, false, role);
    const bool is_live = find_work(saga, step.no, work.direction).has_value();
    if (saga.acts())
        attempt_begins(saga);
    Failure failure{.failure_class = FailureClass::non_retryable,
                    .outcome_known = true,
                    .error = error,
                    .since = saga.now,
                    .was_never_done = true,
                    .adds_to_error = true};
    if (is_live && work.direction == Direction::compensate)
        failure.failure_class = FailureClass::retryable; // it is still to be done
    if (is_live || saga.acts())
        step_failed(saga, step, work, failure, random);
    else if (work.direction == Direction::act)
        settle_while_compensating(saga, step);
    else
        write_failure(saga, work, failure); // parked as before
}

} // namespace stacksaga::core
