#include "core/saga_children.hpp"

#include "core/saga_compensation.hpp"

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
    // An operator who retries the step wants a new child, not one that has failed.
    if (work.direction == Direction::compensate)
        request(saga, step, ChildRequest::Kind::compensate, 0);
    else if (has_ended)
        request(saga, step, ChildRequest::Kind::start, child ? child->run + 1 : 0);
    const std::int64_t until = time_plus(saga.now, step.timeout_us);
    claim_work(saga, attempt, until, until);
    if (work.direction == Direction::act && child && child->status == Status::completed)
        settle_action(saga, step, attempt, *child);
}

void child_timed_out(SagaState &saga, const Step &step, const Work &work, double random) {
    const RetryPolicy &policy = saga.definition->policy(step, work.direction);
    const bool attempts_left =
        policy.max_attempts == 0 || work.attempt - work.attempt_base < policy.max_attempts;
    // The outcome of the child is unknown: the step is compensated, and its fallback is not tried.
    // A child that cannot compensate is waited for; the row stays for its late end.
    const bool is_unknown = work.direction == Direction::act && !attempts_left;
    step_failed(saga, step, work,
                {.failure_class = is_unknown ? FailureClass::unknown : FailureClass::retryable,
                 .outcome_known = false,
                 .error = "the saga took longer than the step's timeout",
                 .since = work.due_at,
                 .keep_lease = true},
                random);
}

void child_settled(SagaState &saga, const Step &step, const std::optional<Child> &child) {
    if (!child)
        return;
    const std::optional<Work> action = find_work(saga, step.no, Direction::act);
    if (action && action->attempt > 0 && !action->falling_back) {
        settle_action(saga, step, *action, *child);
        return;
    }
    const std::optional<Work> compensation = find_work(saga, step.no, Direction::compensate);
    if (compensation && compensation->attempt > 0)
        settle_compensation(saga, step, *compensation, *child);
}

void request_compensation_of_children(SagaState &saga) {
    for (const Step &s : saga.definition->steps)
        if (s.waits_for() == StepWait::child && find_work(saga, s.no, Direction::act))
            request(saga, s, ChildRequest::Kind::compensate, 0);
}

void compensate_for_parent(SagaState &saga, std::string_view error) {
    const bool may_compensate = saga.acts() && !is_past_pivot(saga);
    switch (saga.row.status) {
    case Status::completed:
        if (may_compensate) {
            change_status(saga, Direction::compensate,
                          {.to = Status::compensating, .error = error});
            compensate_next(saga);
            break;
        }
        saga.changes.notifies_parent = true;
        break;
    case Status::failed:
        saga.changes.notifies_parent = true;
        break;
    case Status::pending:
    case Status::running:
    case Status::suspended:
        if (may_compensate)
            begin_compensation(saga, nullptr, error);
        break;
    case Status::compensating: // already
    case Status::parked:       // an operator has to look at it first
        break;
    }
}

} // namespace stacksaga::core
