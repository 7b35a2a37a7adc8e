#include "core/saga/saga_children.hpp"

#include "core/saga/saga_compensation.hpp"

namespace stacksaga::core {

namespace {

void request(SagaState &saga, const Step &step, ChildRequest::Kind kind, std::int32_t run) {
    saga.changes.children.push(saga.memory, {.kind = kind, .step_no = step.no, .run = run});
}

void settle_action(SagaState &saga, const Step &step, const Work &work, const Child &child) {
    if (child.status == Status::completed)
        step_completed(saga, step, work, child.output);
    else if (child.status == Status::failed)
        step_failed(saga, step, work,
                    {.failure_class = FailureClass::non_retryable,
                     .outcome_known = true,
                     .error = child.why_failed,
                     .since = saga.now,
                     .was_never_done = true},
                    0);
}

void settle_compensation(SagaState &saga, const Step &step, const Work &work, const Child &child) {
    if (child.status == Status::failed)
        step_completed(saga, step, work, {});
    else if (child.status == Status::completed && !child.is_requested) // it has read the request
        step_failed(saga, step, work,
                    {.failure_class = FailureClass::non_retryable,
                     .outcome_known = true,
                     .error = child.why_irreversible,
                     .since = saga.now},
                    0);
}

} // namespace

void child_step_due(SagaState &saga, const Step &step, const Work &work,
                    const std::optional<Child> &child, std::string_view worker) {
    Work attempt = work;
    attempt.attempt = work.attempt + 1;
    attempt.started_at = saga.now;
    attempt.worker = worker;
    attempt_begins(saga);
    const bool has_ended = !child || child->status == Status::failed;
    if (work.direction == Direction::compensate && has_ended) {
        step_completed(saga, step, attempt, {});
        return;
    }
    const bool is_waiting = work.started_at.has_value(); // and the child's end not heard of yet
    if (work.direction == Direction::act && is_waiting && child && is_final(child->status)) {
        settle_action(saga, step, attempt, *child);
        return;
    }
    // An operator who retries the step wants a new child, not one that has failed.
    if (work.direction == Direction::compensate)
        request(saga, step, ChildRequest::Kind::compensate, 0);
    else if (has_ended)
        request(saga, step, ChildRequest::Kind::start, child ? child->run + 1 : 0);
    const std::int64_t until = time_plus(saga.now, step.timeout);
    claim_work(saga, attempt, until, until);
    if (work.direction == Direction::act && child && child->status == Status::completed)
        settle_action(saga, step, attempt, *child);
}

void child_timed_out(SagaState &saga, const Step &step, const Work &work,
                     const std::optional<Child> &child, double random) {
    const bool acts = work.direction == Direction::act;
    if (acts && child && is_final(child->status)) {
        settle_action(saga, step, work, *child);
        return;
    }
    if ((acts && !saga.acts()) || (child && child->status == Status::parked)) {
        const std::int64_t until = time_plus(saga.now, step.timeout);
        extend_work(saga, work, until, until);
        return;
    }
    // Waits that are left are no attempts of the child, which is under way. After the last one its
    // outcome is unknown: the step is compensated, and its fallback is not tried.
    const bool is_unknown = acts && !may_retry(work.attempt - work.attempt_base, step.policy);
    step_failed(saga, step, work,
                {.failure_class = is_unknown ? FailureClass::unknown : FailureClass::retryable,
                 .outcome_known = !is_unknown,
                 .error = "the saga took longer than the step's timeout",
                 .since = work.resume_at.value_or(work.due_at)},
                random);
}

namespace {

/// The attempt that waits for the end of the step's child.
std::optional<Work> find_waiting(const SagaState &saga, const Step &step) {
    for (const Direction direction : {Direction::act, Direction::compensate}) {
        const std::optional<Work> work = find_work(saga, step.no, direction);
        if (work && work->attempt > 0 && !work->falling_back)
            return work;
    }
    return std::nullopt;
}

/// Whether the step has given up waiting for its child, and only the child's end says what it did.
bool has_given_up(SagaState &saga, const Step &step) {
    if (is_final(saga.row.status) || find_work(saga, step.no, Direction::act) ||
        find_work(saga, step.no, Direction::compensate))
        return false;
    const std::optional<Doubt> doubt = find_doubt(saga, step.no);
    return doubt && !doubt->by_fallback &&
           last_failed_attempt(saga, step.no, Direction::compensate) == 0;
}

/// The end of a child that the step has given up waiting for.
void settle_given_up(SagaState &saga, const Step &step, const Child &child) {
    const Work action{.step_no = step.no,
                      .direction = Direction::act,
                      .due_at = saga.now,
                      .attempt = last_failed_attempt(saga, step.no, Direction::act)};
    if (child.status == Status::completed) {
        step_completed(saga, step, action, child.output);
        return;
    }
    write_failure(saga, action,
                  {.failure_class = FailureClass::non_retryable,
                   .outcome_known = true,
                   .error = child.why_failed,
                   .since = saga.now,
                   .was_never_done = true,
                   .adds_to_error = true});
    settle(saga, {&step, child.why_failed});
}

} // namespace

void child_settled(SagaState &saga, const Step &step, const std::optional<Child> &child) {
    if (!child)
        return;
    const std::optional<Work> waiting = find_waiting(saga, step);
    if (waiting && waiting->direction == Direction::act)
        settle_action(saga, step, *waiting, *child);
    else if (waiting)
        settle_compensation(saga, step, *waiting, *child);
    else if (is_final(child->status) && has_given_up(saga, step))
        settle_given_up(saga, step, *child);
}

bool child_is_unreadable(SagaState &saga, const Step &step, const Failure &failure) {
    const std::optional<Work> waiting = find_waiting(saga, step);
    if (!waiting)
        return !has_given_up(saga, step);
    Failure unread = failure;
    if (waiting->direction == Direction::act) { // the child may have completed
        unread.failure_class = FailureClass::unknown;
        unread.outcome_known = false;
    }
    step_is_unusable(saga, step, *waiting, unread);
    return true;
}

bool child_cannot_compensate(SagaState &saga, const Step &step, const Failure &failure) {
    const std::optional<Work> waiting = find_waiting(saga, step);
    if (!waiting || waiting->direction == Direction::act)
        return false;
    step_is_unusable(saga, step, *waiting, failure);
    return true;
}

bool look_at_child(SagaState &saga, const Step &step) {
    const std::optional<Work> act = find_work(saga, step.no, Direction::act);
    if (step.waits_for() != StepWait::child ||
        !(has_given_up(saga, step) || (act && is_kept(saga, *act) && !act->falling_back)))
        return false;
    request(saga, step, ChildRequest::Kind::look, 0);
    return true;
}

void request_compensation_of_children(SagaState &saga) {
    for (const Step &s : saga.definition->steps)
        if (s.waits_for() == StepWait::child && waits_for_child(saga, s.no))
            request(saga, s, ChildRequest::Kind::compensate, 0);
}

void compensate_for_parent(SagaState &saga, std::string_view error) {
    const bool may_compensate = saga.acts() && !is_past_pivot(saga);
    if (saga.row.status == Status::completed && may_compensate) {
        change_status(saga, Direction::compensate, {.to = Status::compensating, .error = error});
        settle(saga);
    } else if (is_final(saga.row.status)) {
        saga.changes.notifies_parent = true;
    } else if (may_compensate) {
        request_compensation(saga, CompensationRequest::cancel, {nullptr, error});
        settle(saga);
    } // else it compensates already, or a person has to look at it first
}

void note_ancestor(Ancestry &ancestry, const Ancestor &ancestor) {
    ancestry.is_suspended |= ancestor.is_suspended;
    const bool parks = ancestor.compensation_requested == CompensationRequest::deadline &&
                       ancestor.on_failure == OnFailure::park;
    ancestry.compensates |=
        ancestor.direction == Direction::compensate || (ancestor.compensation_requested && !parks);
}

void heed_ancestors(SagaState &saga, std::string_view error) {
    if (saga.ancestry.compensates && saga.acts() && !is_final(saga.row.status))
        compensate_for_parent(saga, error);
}

} // namespace stacksaga::core
