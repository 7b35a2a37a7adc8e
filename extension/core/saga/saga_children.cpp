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
    const std::optional<Work> action = find_work(saga, step.no, Direction::act);
    if (action && action->attempt > 0 && !action->falling_back) {
        settle_action(saga, step, *action, *child);
        return;
    }
    const std::optional<Work> compensation = find_work(saga, step.no, Direction::compensate);
    if (compensation && compensation->attempt > 0 && !compensation->falling_back) {
        settle_compensation(saga, step, *compensation, *child);
        return;
    }
    const std::optional<Doubt> doubt = !action && !compensation && is_final(child->status)
                                           ? find_doubt(saga, step.no)
                                           : std::nullopt;
    if (doubt && !doubt->by_fallback && !is_final(saga.row.status) &&
        last_failed_attempt(saga, step.no, Direction::compensate) == 0)
        settle_given_up(saga, step, *child);
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
