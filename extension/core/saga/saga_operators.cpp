#include "core/saga/saga_operators.hpp"

#include "core/saga/saga_children.hpp"
#include "core/saga/saga_compensation.hpp"
#include "core/saga/saga_deadline.hpp"

namespace stacksaga::core {

namespace {

constexpr std::string_view final_hint = "It has ended; saga_timeline() shows what happened to it.";

std::optional<Refusal> cancel_while_compensating(SagaState &saga) {
    if (saga.is_parked())
        return Refusal{", after its compensation began",
                       "Use retry_saga() or resolve_step() for the compensation that failed."};
    if (saga.is_suspended()) {
        end_suspension(saga);
        settle(saga);
    }
    return std::nullopt;
}

} // namespace

std::optional<Refusal> cancel_saga(SagaState &saga, std::string_view error) {
    if (is_final(saga.row.status))
        return Refusal{"", final_hint};
    if (!saga.acts())
        return cancel_while_compensating(saga);
    if (is_past_pivot(saga))
        return Refusal{", past an irreversible step",
                       "Let it complete; retry_saga() and resolve_step() continue a parked saga."};
    if (saga.is_suspended())
        end_suspension(saga);
    request_compensation(saga, CompensationRequest::cancel, {nullptr, error});
    settle(saga);
    return std::nullopt;
}

std::optional<Refusal> compensate_saga(SagaState &saga, std::string_view error,
                                       std::int64_t delay) {
    if (!is_final(saga.row.status) && !saga.is_parked() && !saga.is_suspended()) {
        // Said again, after the answer was lost.
        if (!saga.acts() || saga.row.compensation_requested == CompensationRequest::cancel)
            return std::nullopt;
        return Refusal{", neither parked nor suspended",
                       "Use cancel_saga(), which any saga takes before an irreversible step."};
    }
    if (const std::optional<Refusal> refusal = cancel_saga(saga, error))
        return refusal;
    delay_steps(saga, delay);
    return std::nullopt;
}

std::optional<Refusal> suspend_saga(SagaState &saga) {
    if (saga.is_suspended())
        return std::nullopt;
    if (is_final(saga.row.status))
        return Refusal{"", final_hint};
    if (saga.is_parked())
        return Refusal{"", "It waits for an operator already."};
    saga.row.suspended_at = saga.now;
    change_status(saga, saga.row.direction, {.to = Status::suspended});
    arrange_work(saga);
    return std::nullopt;
}

void lose_claims(SagaState &saga, std::string_view error, double random) {
    List<Work> claimed{};
    for (const WorkRow &row : saga.work) {
        const Work &w = row.work;
        if (row.is_live() && w.purpose == WorkPurpose::step && w.is_claimed() &&
            (w.falling_back || saga.definition->step(w.step_no).waits_for() != StepWait::child))
            claimed.push(saga.memory, w);
    }
    for (const Work &w : claimed) {
        const std::optional<Work> work = find_work(saga, w.step_no, w.direction);
        if (work && work->is_claimed())
            step_failed(saga, saga.definition->step(w.step_no), *work,
                        {.failure_class = FailureClass::unknown,
                         .outcome_known = false,
                         .error = error,
                         .since = saga.now},
                        random);
    }
}

std::optional<Refusal> resume_saga(SagaState &saga, std::int64_t delay) {
    if (!saga.is_suspended())
        return Refusal{", not suspended", saga.is_parked() ? "Use retry_saga() for a parked saga."
                                                           : "Only suspend_saga() stops a saga."};
    end_suspension(saga);
    settle(saga);
    delay_steps(saga, delay);
    return std::nullopt;
}

// ----------------------------------------------------------------------------------------- retry

namespace {

/// A step of a parked saga that is to be tried again.
struct Again {
    const Step *step;
    std::optional<Doubt> doubt;
    bool verifies;
};

/// Nothing: the step does not wait for this retry.
std::optional<Again> find_again(SagaState &saga, const Step &s) {
    if (has_acted(saga, s.no))
        return std::nullopt;
    const std::optional<Work> work = find_work(saga, s.no, Direction::act);
    const bool has_failed = !work && last_failed_attempt(saga, s.no, Direction::act) > 0;
    if (!has_failed && !(work && is_kept(saga, *work)))
        return std::nullopt;
    const std::optional<Doubt> doubt = find_doubt(saga, s.no);
    const bool is_child = s.waits_for() == StepWait::child && !(doubt && doubt->by_fallback);
    return Again{.step = &s, .doubt = doubt, .verifies = doubt && s.has_verify && !is_child};
}

std::optional<Refusal> refuse_again(SagaState &saga, const Again &again) {
    const Step &s = *again.step;
    const bool is_child =
        s.waits_for() == StepWait::child && !(again.doubt && again.doubt->by_fallback);
    if (!again.doubt || again.verifies || is_child)
        return std::nullopt;
    if (s.irreversible)
        return Refusal{", since the outcome of an irreversible step is not known",
                       "Say with resolve_step() whether the step was done."};
    if (is_past_dedupe_retention(saga, s, Direction::act))
        return Refusal{", since a step is in doubt for longer than its service remembers the key",
                       "Say with resolve_step() whether the step was done."};
    return std::nullopt;
}

/// The policy counts from one again. Where an attempt of the fallback is in doubt, the fallback is
/// tried again.
void begin_again(SagaState &saga, const Again &again) {
    const Step &s = *again.step;
    if (const std::optional<Work> work = find_work(saga, s.no, Direction::act)) {
        start_counting_anew(saga, *work, again.verifies);
        return;
    }
    NewWork work{.direction = Direction::act,
                 .due_at = saga.now,
                 .attempt = last_failed_attempt(saga, s.no, Direction::act)};
    if (again.doubt) {
        work.falling_back = again.doubt->by_fallback;
        work.lease = again.doubt->lease;
        work.verifying = again.verifies;
        work.started_at = again.doubt->claimed_at;
    } else {
        work = first_work(saga, s, saga.now, work.attempt);
    }
    add_work(saga, s, work);
}

std::optional<Refusal> retry_actions(SagaState &saga) {
    for (const Step &s : saga.definition->steps)
        if (const std::optional<Again> again = find_again(saga, s))
            if (const std::optional<Refusal> refusal = refuse_again(saga, *again))
                return refusal;
    for (const Step &s : saga.definition->steps)
        if (const std::optional<Again> again = find_again(saga, s))
            begin_again(saga, *again);
    end_deadline_park(saga);
    return std::nullopt;
}

/// Whether the step has, or may have, an effect that its compensation has not undone.
bool has_to_be_undone(SagaState &saga, const Step &s) {
    return (has_acted(saga, s.no) || is_in_doubt(saga, s.no)) && !has_compensated(saga, s.no);
}

/// The saga parked for a compensation that has not failed: see saga_is_unusable().
bool is_parked_for_open_compensation(SagaState &saga) {
    return saga.row.parked_step &&
           find_work(saga, *saga.row.parked_step, Direction::compensate).has_value();
}

std::optional<Refusal> retry_compensations(SagaState &saga) {
    bool any = is_parked_for_open_compensation(saga);
    bool any_forgotten = false;
    for (const Step &s : saga.definition->steps) {
        const std::optional<Doubt> doubt = find_doubt(saga, s.no);
        const std::optional<Work> act = find_work(saga, s.no, Direction::act);
        if (act && is_kept(saga, *act) && doubt && s.has_verify) {
            start_counting_anew(saga, *act, true);
            any = true;
        }
        any |= look_at_child(saga, s);
        if (last_failed_attempt(saga, s.no, Direction::compensate) == 0 ||
            !has_to_be_undone(saga, s) || find_work(saga, s.no, Direction::compensate))
            continue;
        const bool by_fallback = doubt ? doubt->by_fallback : was_done_by_fallback(saga, s.no);
        const bool is_child = s.waits_for() == StepWait::child && !by_fallback;
        if (!is_child && is_past_dedupe_retention(saga, s, Direction::compensate)) {
            any_forgotten = true;
            continue;
        }
        add_work(saga, s,
                 {.direction = Direction::compensate,
                  .due_at = saga.now,
                  .attempt = last_ended_attempt(saga, s.no, Direction::compensate),
                  .falling_back = by_fallback});
        any = true;
    }
    if (!any && any_forgotten)
        return Refusal{
            ", since a compensation is in doubt for longer than its service remembers the key",
            "Say with resolve_step(), with direction => 'compensate', whether the step is undone."};
    if (!any)
        return Refusal{", and only a person can say what becomes of the step",
                       "Say with resolve_step() whether the step was done, or that it is undone."};
    return std::nullopt;
}

} // namespace

std::optional<Refusal> retry_saga(SagaState &saga, std::int64_t delay) {
    if (!saga.is_parked())
        return Refusal{", not parked",
                       "retry_saga() is for parked sagas; the others retry by their policies."};
    const std::optional<Refusal> refusal =
        saga.acts() ? retry_actions(saga) : retry_compensations(saga);
    if (refusal)
        return refusal;
    settle(saga);
    delay_steps(saga, delay);
    return std::nullopt;
}

// --------------------------------------------------------------------------------------- resolve

namespace {

/// The attempt of a step that can be resolved in one direction.
struct Open {
    Work work; ///< its row, or the failed attempt that has none
    bool has_row;
};

Open failed_attempt(const Step &step, Direction direction, std::int32_t attempt) {
    return {
        .work = {.step_no = step.no, .direction = direction, .due_at = never, .attempt = attempt},
        .has_row = false};
}

std::optional<Open> open_act(SagaState &saga, const Step &step) {
    if (has_acted(saga, step.no))
        return std::nullopt;
    if (const std::optional<Work> work = find_work(saga, step.no, Direction::act))
        return Open{.work = *work, .has_row = true};
    const std::optional<Doubt> doubt = find_doubt(saga, step.no);
    const std::int32_t attempts = last_failed_attempt(saga, step.no, Direction::act);
    if (!doubt && !(saga.acts() && saga.is_parked() && attempts > 0))
        return std::nullopt;
    Open open = failed_attempt(step, Direction::act, attempts);
    if (doubt) {
        open.work.lease = doubt->lease;
        open.work.falling_back = doubt->by_fallback;
        open.work.started_at = doubt->claimed_at;
    }
    return open;
}

std::optional<Open> open_compensation(SagaState &saga, const Step &step) {
    if (saga.acts() || !has_to_be_undone(saga, step))
        return std::nullopt;
    if (const std::optional<Work> work = find_work(saga, step.no, Direction::compensate))
        return Open{.work = *work, .has_row = true};
    const std::int32_t attempts = last_failed_attempt(saga, step.no, Direction::compensate);
    const bool only_a_person = saga.is_parked() && saga.row.parked_step == step.no &&
                               saga.row.parked_direction == Direction::compensate;
    if (attempts == 0 && !only_a_person)
        return std::nullopt;
    return failed_attempt(step, Direction::compensate, attempts);
}

/// A claim whose time is over is settled first.
void settle_ended_claim(SagaState &saga, const Step &step, Direction direction, double random) {
    const std::optional<Work> work = find_work(saga, step.no, direction);
    if (work && work->is_claimed() && work->resume_at.value_or(work->due_at) <= saga.now &&
        (step.waits_for() != StepWait::child || work->falling_back))
        lease_expired(saga, step, *work, random);
}

std::optional<Refusal> refuse_live(SagaState &saga, const Step &step) {
    for (const Direction d : {Direction::act, Direction::compensate}) {
        const std::optional<Work> work = find_work(saga, step.no, d);
        if (!work || !work->is_claimed())
            continue;
        if (step.waits_for() == StepWait::child && !work->falling_back)
            return Refusal{", and the step is a saga of its own",
                           "Cancel, retry or resolve that saga; it notifies this one."};
        return Refusal{", and an attempt of the step is under its lease",
                       "Wait for its answer, or until its lease has ended."};
    }
    return std::nullopt;
}

/// The child itself knows its end, also before this saga has read of it.
bool is_settled_by_child(SagaState &saga, const Step &step, bool child_stands) {
    if (step.waits_for() != StepWait::child)
        return false;
    if (const std::optional<Work> act = find_work(saga, step.no, Direction::act))
        return !act->falling_back;
    const std::optional<Doubt> doubt = find_doubt(saga, step.no);
    return child_stands || (doubt && !doubt->by_fallback);
}

/// The attempt that an operator's word settles.
Work resolved_attempt(const Open &open, bool is_done, std::string_view role) {
    Work work = open.work;
    if (is_done) // what failed stays in the history
        ++work.attempt;
    work.attempt = std::max(work.attempt, 1);
    work.worker = role;
    return work;
}

void resolve_act(SagaState &saga, const Step &step, const Open &open, const Resolution &r) {
    const bool in_doubt = is_in_doubt(saga, step.no);
    if (saga.acts())
        attempt_begins(saga);
    if (r.outcome == ResolveOutcome::done) {
        Work done = resolved_attempt(open, true, r.role);
        if (const std::optional<Doubt> doubt = find_doubt(saga, step.no)) {
            done.lease = doubt->lease; // not that of a later attempt, which had no effect
            done.started_at = doubt->claimed_at;
            done.falling_back = doubt->by_fallback;
        }
        step_completed(saga, step, done, r.output, {},
                       in_doubt ? SettledBy::resolve : SettledBy::person);
        return;
    }
    const bool settles = r.outcome == ResolveOutcome::never_done || !in_doubt;
    Work work = resolved_attempt(open, false, r.role);
    if (const std::optional<Doubt> doubt = find_doubt(saga, step.no)) {
        work.attempt = doubt->attempt; // whose error is added to
        work.lease = doubt->lease;
        work.started_at = doubt->claimed_at;
        work.falling_back = doubt->by_fallback;
    }
    const Failure failure{.failure_class =
                              settles ? FailureClass::non_retryable : FailureClass::unknown,
                          .outcome_known = settles,
                          .error = r.error,
                          .since = saga.now,
                          .was_never_done = settles,
                          .adds_to_error = true};
    write_failure(saga, work, failure);
    if (settles && !saga.acts())
        remove_work(saga, step.no, Direction::compensate); // there is nothing to undo
    if (open.has_row) {
        Work given_up = open.work;
        given_up.attempt = std::max(given_up.attempt, 1);
        if (saga.acts())
            give_up(saga, step, given_up, !settles);
        else if (settles)
            remove_work(saga, step.no, Direction::act);
        else if (open.work.verifying)
            keep_work(saga, open.work);
    }
    settle(saga, {&step, r.error});
}

void resolve_compensation(SagaState &saga, const Step &step, const Open &open, const Resolution &r,
                          double random) {
    if (r.outcome == ResolveOutcome::done) {
        step_completed(saga, step, resolved_attempt(open, true, r.role), r.output, {},
                       SettledBy::resolve);
        return;
    }
    Work work = resolved_attempt(open, false, r.role);
    const std::optional<Doubt> doubt = find_doubt(saga, step.no, Direction::compensate);
    // A person who looks this long after the last attempt sees all its effects: the key may be used
    // again.
    const bool settles = doubt && saga.dedupe_retention_us &&
                         time_plus(doubt->claimed_at, *saga.dedupe_retention_us) < saga.now;
    if (settles)
        settle_outcomes(saga, {.step_no = step.no, .direction = Direction::compensate});
    const bool stays_in_doubt = doubt && !settles && doubt->attempt == work.attempt;
    if (stays_in_doubt) {
        work.lease = doubt->lease;
        work.started_at = doubt->claimed_at;
        work.falling_back = doubt->by_fallback;
    }
    const Failure failure{.failure_class = stays_in_doubt
                                               ? FailureClass::unknown
                                               : FailureClass::retryable, // it is still to be done
                          .outcome_known = !stays_in_doubt,
                          .error = r.error,
                          .since = saga.now,
                          .adds_to_error = true};
    if (open.has_row)
        step_failed(saga, step, work, failure, random);
    else if (open.work.attempt > 0)
        write_failure(saga, work, failure); // parked as before
}

std::optional<Refusal> refuse_resolution(SagaState &saga, const Step &step, const Resolution &r,
                                         Direction direction) {
    const bool in_doubt = is_in_doubt(saga, step.no);
    if (direction == Direction::compensate && r.outcome == ResolveOutcome::never_done)
        return Refusal{", and a compensation is never settled as \"never\"",
                       "Use done, or not_done: it is tried again by its policy or by retry_saga().",
                       true};
    if (direction == Direction::compensate && r.outcome == ResolveOutcome::done && in_doubt)
        return Refusal{", and it is not known whether the step was done",
                       "Resolve the step with direction => 'act' first."};
    if (direction == Direction::act && r.outcome == ResolveOutcome::not_done && in_doubt &&
        step.irreversible)
        return Refusal{", and the step is irreversible and in doubt: what is not seen now may "
                       "still happen",
                       "Use never once it cannot happen any more, or done."};
    return std::nullopt;
}

} // namespace

Resolved resolve_step(SagaState &saga, const Step &step, const Resolution &r, double random) {
    if (is_final(saga.row.status))
        return {.refusal = Refusal{"", final_hint}};
    settle_ended_claim(saga, step, Direction::act, random);
    settle_ended_claim(saga, step, Direction::compensate, random);
    if (is_settled_by_child(saga, step, r.child_stands))
        return {.refusal = Refusal{", and the step is a saga of its own",
                                   "Cancel, retry or resolve that saga; it notifies this one."}};
    if (const std::optional<Refusal> refusal = refuse_live(saga, step))
        return {.refusal = refusal};
    const std::optional<Open> act = open_act(saga, step);
    const std::optional<Open> compensation = open_compensation(saga, step);
    if (!r.direction && act && compensation)
        return {.refusal =
                    Refusal{", and both the action and the compensation of the step are open",
                            "Say with direction which of them is meant."}};
    const Direction direction = r.direction.value_or(act ? Direction::act : Direction::compensate);
    const std::optional<Open> &open = direction == Direction::act ? act : compensation;
    if (!open)
        return {.refusal = Refusal{", and the step neither runs nor waits in this direction",
                                   "Resolve a step that has begun and is not settled; saga_history "
                                   "shows them."},
                .direction = direction};
    if (const std::optional<Refusal> refusal = refuse_resolution(saga, step, r, direction))
        return {.refusal = refusal, .direction = direction};
    if (direction == Direction::act)
        resolve_act(saga, step, *open, r);
    else
        resolve_compensation(saga, step, *open, r, random);
    return {.direction = direction};
}

} // namespace stacksaga::core
