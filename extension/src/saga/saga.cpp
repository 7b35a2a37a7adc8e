#include "core/retry.hpp"

#include "src/saga/saga.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/function.hpp"
#include "pg/random.hpp"
#include "src/common/counters.hpp"
#include "src/common/limits.hpp"
#include "src/saga/child.hpp"

namespace stacksaga {

namespace {

using core::Direction;
using core::FailureClass;
using core::Status;

bool stage_is_complete(const Definition &d, const Progress &p, int16 stage) {
    return std::all_of(d.steps.begin(), d.steps.end(),
                       [&](const Step &s) { return s.stage != stage || p.acted[s.no - 1]; });
}

bool is_past_pivot(const Definition &d, const Progress &p) {
    return std::any_of(d.steps.begin(), d.steps.end(),
                       [&](const Step &s) { return s.irreversible && p.acted[s.no - 1]; });
}

bool is_to_be_undone(const Step &s, const Progress &p) {
    return s.compensable &&
           (p.acted[s.no - 1] || (s.compensate_when_started && p.doubtful[s.no - 1]));
}

bool anything_to_undo(const Definition &d, const Progress &p) {
    return std::any_of(d.steps.begin(), d.steps.end(),
                       [&](const Step &s) { return is_to_be_undone(s, p); });
}

/// What a step's work row looks like when its turn comes at `due_at`.
NewWork first_work(const Saga &saga, const Step &step, TimestampTz due_at, int32 attempt) {
    NewWork work{.direction = Direction::act, .due_at = due_at, .attempt = attempt};
    const core::StepWait wait = step.traits().waits_for;
    if (wait == core::StepWait::time)
        work.due_at = pg::time_plus(due_at, step.delay_us);
    if (wait == core::StepWait::time || (wait == core::StepWait::signal && due_at <= saga.now))
        work.started_at = due_at;
    if (wait == core::StepWait::signal && work.started_at)
        work.due_at =
            step.timeout_us == no_timeout ? DT_NOEND : pg::time_plus(due_at, step.timeout_us);
    return work;
}

void open_stage(Saga &saga, int16 stage, TimestampTz due_at) {
    bool waits_for_signal = false;
    for (const Step &s : saga.definition->steps) {
        if (s.stage != stage)
            continue;
        add_work(saga, s, first_work(saga, s, due_at, 0));
        waits_for_signal = waits_for_signal || s.traits().waits_for == core::StepWait::signal;
    }
    if (waits_for_signal)
        take_signals(saga);
}

/// After `step` was done: the next stage, or the end.
void advance(Saga &saga, const Step &step) {
    if (saga.status != Status::running)
        return;
    if (!saga.definition->is_alone(step) &&
        !stage_is_complete(*saga.definition, read_progress(saga), step.stage))
        return;
    if (step.stage < saga.definition->stages)
        open_stage(saga, static_cast<int16>(step.stage + 1), saga.now);
    else
        change_status(saga, Direction::act, {.to = Status::completed});
}

void park_saga(Saga &saga, const Step &step, Direction direction, std::string_view error) {
    std::optional<int16> failed_step;
    if (direction == Direction::act)
        failed_step = step.no;
    if (saga.is_suspended())
        release_work(saga);
    change_status(saga, saga.direction,
                  {.to = Status::parked,
                   .failed_step = failed_step,
                   .error = error,
                   .parked_step = step.no,
                   .parked_direction = direction});
}

/// An irreversible step that may have been done, and of which no attempt is under way: until an
/// operator settles it the saga cannot compensate.
const Step *find_unknown_pivot(const Saga &saga, const Progress &p) {
    bool *in_flight = nullptr;
    for (const Step &s : saga.definition->steps) {
        if (!s.irreversible || p.acted[s.no - 1] || !p.doubtful[s.no - 1])
            continue;
        if (in_flight == nullptr)
            in_flight = steps_in_flight(saga);
        if (!in_flight[s.no - 1])
            return &s;
    }
    return nullptr;
}

/// A step of this stage that is neither done nor due.
const Step *find_blocked(const Saga &saga, int16 stage) {
    Progress p = read_progress(saga);
    bool *has_work = steps_with_work(saga, Direction::act);
    bool *is_kept = steps_kept(saga);
    for (const Step &s : saga.definition->steps) {
        bool is_due = has_work[s.no - 1] &&
                      (!is_kept[s.no - 1] || s.traits().waits_for == core::StepWait::signal);
        if (s.stage == stage && !p.acted[s.no - 1] && !is_due)
            return &s;
    }
    return nullptr;
}

bool waits_for_answer(const Saga &saga, const Step &step, const Work &work) {
    return saga.status == Status::parked && saga.direction == Direction::act &&
           work.direction == Direction::act && saga.parked_step == step.no;
}

/// The saga was parked for this step, which is done now or tried again: it continues, unless a
/// sibling has failed meanwhile or has an unknown outcome too.
void unpark(Saga &saga, const Step &step) {
    if (const Step *blocked = find_blocked(saga, step.stage))
        begin_compensation(saga, blocked, "a step failed while the saga was parked");
    else if (saga.status != Status::running)
        change_status(saga, Direction::act, {.to = Status::running});
}

/// Marks the compensations that failed for good as done, and returns the first: they have failures,
/// no marker, and are not due.
const Step *mark_given_up(const Saga &saga, Progress &p) {
    const Step *first = nullptr;
    int32 *failed = last_failed_attempts(saga, Direction::compensate);
    for (const Step &s : saga.definition->steps) {
        if (failed[s.no - 1] == 0 || p.compensated[s.no - 1])
            continue;
        p.compensated[s.no - 1] = true;
        if (first == nullptr)
            first = &s;
    }
    return first;
}

/// A claimed step has settled while the saga compensates. `happened`: it was done, or may have
/// been. If it is irreversible the saga can neither compensate nor continue, and parks.
void settled_while_compensating(Saga &saga, const Step &step, bool happened) {
    if (saga.status != Status::compensating && !saga.is_suspended())
        return;
    if (step.irreversible && happened)
        park_saga(saga, step, Direction::act,
                  "an irreversible step settled after the compensation had begun");
    else if (saga.status == Status::compensating && !work_remains(saga, Direction::act))
        compensate_next(saga);
}

/// A compensation is done: makes the next ones due.
void undone(Saga &saga) {
    bool is_compensating =
        saga.status == Status::compensating ||
        (saga.status == Status::parked && saga.parked_direction != Direction::act);
    if (is_compensating && !work_remains(saga, Direction::compensate))
        compensate_next(saga);
}

/// A compensation has failed for good: the saga parks, at once or after the other compensations.
void compensation_failed(Saga &saga, const Step &step, const Work &work, const Failure &f) {
    remove_work(saga, work.step_no, work.direction);
    if (!saga.definition->continue_compensating)
        park_saga(saga, step, Direction::compensate, f.error);
    else if (saga.status == Status::compensating && !work_remains(saga, Direction::compensate))
        compensate_next(saga);
}

/// The action has failed for good, and none of its attempts has an unknown outcome: its fallback is
/// tried, with attempts of its own.
bool fall_back(const Saga &saga, const Step &step, const Work &work, const Failure &f) {
    if (!step.has_fallback() || work.falling_back || saga.direction != Direction::act ||
        f.failure_class == FailureClass::unknown || has_unknown_attempt(saga, step.no))
        return false;
    remove_work(saga, work.step_no, work.direction);
    CRASH_POINT("fallback: action removed");
    add_work(saga, step,
             {.direction = Direction::act,
              .due_at = saga.now,
              .attempt = work.attempt,
              .falling_back = true});
    return true;
}

core::Verdict decide(const Saga &saga, const Step &step, const Work &work, const Failure &f) {
    const core::RetryPolicy &policy = saga.definition->rules(step, work.direction).policy;
    return core::decide(
        {.direction = work.direction,
         .failure_class = f.failure_class,
         .attempts_left =
             policy.max_attempts == 0 || work.attempt - work.attempt_base < policy.max_attempts,
         .has_verify = step.verify && !work.falling_back && !f.was_verified && !f.outcome_known,
         .irreversible = step.irreversible && !f.outcome_known});
}

void try_again(const Saga &saga, const Step &step, const Work &work, const Failure &f) {
    const core::RetryPolicy &policy = saga.definition->rules(step, work.direction).policy;
    int64 delay = f.retry_after_us.value_or(
        core::delay_before(work.attempt - work.attempt_base + 1, policy, pg::random_fraction()));
    count_event(Counter::retries);
    pause_work(saga, work, pg::time_plus(f.since, delay), f.keep_lease, false);
}

/// An irreversible step whose outcome is unknown. It is not due again, but its late answer counts.
void park_unknown(Saga &saga, const Step &step, const Work &work, const Failure &f) {
    if (f.keep_lease)
        pause_work(saga, work, DT_NOEND, true, false);
    else
        remove_work(saga, work.step_no, work.direction);
    park_saga(saga, step, work.direction, f.error);
}

/// An action that fails while the saga compensates is not tried again.
void failed_while_compensating(Saga &saga, const Step &step, const Work &work, const Failure &f) {
    if (step.verify && !work.falling_back && !f.outcome_known && !f.was_verified) {
        pause_work(saga, work, saga.now, f.keep_lease, true);
        return;
    }
    remove_work(saga, work.step_no, work.direction);
    bool happened = !f.outcome_known;
    if (step.irreversible && !happened) // an earlier attempt may have done it
        happened = read_progress(saga).doubtful[step.no - 1];
    settled_while_compensating(saga, step, happened);
}

} // namespace

void open_first_stage(const Saga &saga, TimestampTz due_at) {
    for (const Step &s : saga.definition->steps)
        if (s.stage == 1)
            add_work(saga, s, first_work(saga, s, due_at, 0));
    if (saga.deadline_at)
        add_deadline(saga);
}

void attempt_begins(Saga &saga) {
    if (saga.status == Status::pending)
        change_status(saga, Direction::act, {.to = Status::running});
}

void step_completed(Saga &saga, const Step &step, const Work &work, const pg::Param &output) {
    write_effect(saga, step, work, output);
    remove_work(saga, work.step_no, work.direction);
    if (work.direction == Direction::compensate) {
        undone(saga);
    } else if (saga.direction == Direction::compensate) {
        settled_while_compensating(saga, step, true);
    } else {
        if (waits_for_answer(saga, step, work))
            unpark(saga, step);
        advance(saga, step);
    }
}

void step_failed(Saga &saga, const Step &step, const Work &work, const Failure &failure) {
    const bool was_parked = waits_for_answer(saga, step, work);
    if (was_parked)
        change_status(saga, Direction::act, {.to = Status::running});
    write_failure(saga, step, work, failure);
    if (work.direction == Direction::act && saga.direction == Direction::compensate) {
        failed_while_compensating(saga, step, work, failure);
        return;
    }
    switch (decide(saga, step, work, failure)) {
    case core::Verdict::retry:
        try_again(saga, step, work, failure);
        if (was_parked)
            unpark(saga, step);
        break;
    case core::Verdict::verify:
        pause_work(saga, work, saga.now, failure.keep_lease, true);
        if (was_parked)
            unpark(saga, step);
        break;
    case core::Verdict::give_up:
        if (fall_back(saga, step, work, failure)) {
            if (was_parked)
                unpark(saga, step);
            break;
        }
        remove_work(saga, work.step_no, work.direction);
        if (saga.status != Status::parked) // whose unknown step must be settled first
            begin_compensation(saga, &step, failure.error);
        break;
    case core::Verdict::park:
        if (work.direction == Direction::compensate)
            compensation_failed(saga, step, work, failure);
        else
            park_unknown(saga, step, work, failure);
        break;
    }
}

void lease_expired(Saga &saga, const Step &step, const Work &work) {
    if (step.traits().waits_for == core::StepWait::child && !work.falling_back) {
        child_timed_out(saga, step, work);
        return;
    }
    // due_at is the earlier of lease and timeout; a message has no lease but the timeout.
    bool timed_out =
        *work.lease_until > work.due_at || step.traits().waits_for == core::StepWait::answer;
    step_failed(saga, step, work,
                {.failure_class = FailureClass::unknown,
                 .outcome_known = false,
                 .error = timed_out ? "the attempt took longer than the step's timeout"
                                    : "the lease ran out",
                 .since = work.due_at,
                 .keep_lease = true});
}

void signal_due(Saga &saga, const Step &step, const Work &work) {
    if (!work.started_at) { // its wait begins only now
        remove_work(saga, work.step_no, work.direction);
        add_work(saga, step, first_work(saga, step, saga.now, work.attempt));
        take_signals(saga);
        return;
    }
    Work attempt = work;
    attempt.attempt = work.attempt + 1;
    attempt_begins(saga);
    step_failed(saga, step, attempt,
                {.failure_class = FailureClass::non_retryable,
                 .outcome_known = true,
                 .error = psprintf("signal \"%s\" did not arrive in time", clip(step.signal)),
                 .since = saga.now});
}

void take_signals(Saga &saga) {
    for (const Step &s : saga.definition->steps) {
        if (s.traits().waits_for != core::StepWait::signal || saga.direction != Direction::act ||
            saga.is_suspended())
            continue;
        std::optional<Work> work = find_work(saga, s.no, Direction::act);
        if (!work || !work->started_at || work->falling_back)
            continue;
        std::optional<Datum> payload = take_signal(saga, s);
        if (!payload)
            continue;
        ++work->attempt;
        attempt_begins(saga);
        step_completed(saga, s, *work, pg::param_datum(JSONBOID, *payload));
    }
}

TimestampTz attempt_deadline(const Saga &saga, const Step &step, Direction direction) {
    TimestampTz timeout = pg::time_plus(saga.now, step.timeout_us);
    bool binds = direction == Direction::act && saga.deadline_at && *saga.deadline_at > saga.now;
    return binds ? std::min(timeout, *saga.deadline_at) : timeout;
}

bool is_past_pivot(const Saga &saga) {
    Progress p = read_progress(saga);
    return is_past_pivot(*saga.definition, p) || find_unknown_pivot(saga, p) != nullptr;
}

bool deadline_passed(Saga &saga) {
    if (!saga.deadline_at || *saga.deadline_at > saga.now || saga.direction != Direction::act ||
        core::is_at_rest(saga.status) || is_past_pivot(saga))
        return false;
    begin_compensation(saga, nullptr, "the deadline of the saga passed");
    return true;
}

void deadline_due(Saga &saga) {
    remove_saga_work(saga, core::WorkPurpose::deadline);
    CRASH_POINT("deadline: its row removed");
    deadline_passed(saga);
}

void step_is_unusable(Saga &saga, const Step &step, const Work &work, const Failure &failure) {
    write_failure(saga, step, work, failure);
    remove_work(saga, work.step_no, work.direction);
    park_saga(saga, step, work.direction, failure.error);
}

void begin_compensation(Saga &saga, const Step *step, std::string_view error) {
    std::optional<int16> failed_step;
    if (step != nullptr)
        failed_step = step->no;
    Progress p = read_progress(saga);
    if (step != nullptr && is_past_pivot(*saga.definition, p)) {
        park_saga(saga, *step, Direction::act, error);
        return;
    }
    if (const Step *unknown = find_unknown_pivot(saga, p)) {
        park_saga(saga, *unknown, Direction::act,
                  "the outcome of an irreversible step is not known");
        return;
    }
    remove_unclaimed_acts(saga);
    CRASH_POINT("compensation: acts removed");
    bool waits = work_remains(saga, Direction::act);
    if (waits && saga.definition->has_children)
        request_compensation_of_children(saga);
    Status to = Status::compensating;
    if (saga.is_suspended())
        to = Status::suspended;
    else if (!waits && !anything_to_undo(*saga.definition, p))
        to = Status::failed;
    change_status(saga, Direction::compensate,
                  {.to = to, .failed_step = failed_step, .error = error});
    CRASH_POINT("compensation: begun, no work yet");
    if (to == Status::compensating && !waits)
        compensate_next(saga);
}

void compensate_next(Saga &saga) {
    Progress p = read_progress(saga);
    const Step *given_up = mark_given_up(saga, p);
    if (given_up != nullptr && !saga.definition->continue_compensating) {
        park_saga(saga, *given_up, Direction::compensate, "a compensation failed for good");
        return;
    }
    for (int16 stage = saga.definition->stages; stage > 0; --stage) {
        bool any = false;
        for (const Step &s : saga.definition->steps) {
            if (s.stage != stage || !is_to_be_undone(s, p) || p.compensated[s.no - 1])
                continue;
            add_work(saga, s, {.direction = Direction::compensate, .due_at = saga.now});
            any = true;
        }
        if (any) {
            if (saga.status != Status::compensating)
                change_status(saga, Direction::compensate, {.to = Status::compensating});
            return;
        }
    }
    if (given_up != nullptr)
        park_saga(saga, *given_up, Direction::compensate, "a compensation failed for good");
    else
        change_status(saga, Direction::compensate, {.to = Status::failed});
}

namespace {

void continue_forward(Saga &saga) {
    const Definition &d = *saga.definition;
    Progress p = read_progress(saga);
    int32 *failed = last_failed_attempts(saga, Direction::act);
    bool *has_work = steps_with_work(saga, Direction::act);
    bool begun = false;
    for (const Step &s : d.steps)
        begun = begun || p.acted[s.no - 1] || failed[s.no - 1] > 0;
    int16 stage = 1;
    while (stage <= d.stages && stage_is_complete(d, p, stage))
        ++stage;
    for (const Step &s : d.steps) {
        std::optional<Work> work;
        if (s.stage == stage && has_work[s.no - 1])
            work = find_work(saga, s.no, Direction::act);
        begun = begun || (work && work->attempt > 0);
    }
    bool is_parked = saga.status == Status::parked;
    change_status(saga, Direction::act,
                  {.to = begun || is_parked ? Status::running : Status::pending});
    if (stage > d.stages) {
        change_status(saga, Direction::act, {.to = Status::completed});
        return;
    }
    for (const Step &s : d.steps)
        if (s.stage == stage && !p.acted[s.no - 1] && !has_work[s.no - 1])
            add_work(saga, s, first_work(saga, s, saga.now, failed[s.no - 1]));
    take_signals(saga);
}

void continue_compensation(Saga &saga) {
    const bool is_parked = saga.status == Status::parked;
    if (saga.status != Status::compensating)
        change_status(saga, Direction::compensate, {.to = Status::compensating});
    Progress p = read_progress(saga);
    int32 *failed = last_failed_attempts(saga, Direction::compensate);
    bool *has_work = steps_with_work(saga, Direction::compensate);
    bool waits = work_remains(saga, Direction::act);
    for (const Step &s : saga.definition->steps) {
        waits = waits || has_work[s.no - 1];
        if (!is_parked || failed[s.no - 1] == 0 || p.compensated[s.no - 1] || has_work[s.no - 1])
            continue;
        add_work(
            saga, s,
            {.direction = Direction::compensate, .due_at = saga.now, .attempt = failed[s.no - 1]});
        waits = true;
    }
    if (!waits)
        compensate_next(saga);
}

} // namespace

void continue_saga(Saga &saga) {
    if (saga.is_suspended())
        release_work(saga);
    if (saga.direction == Direction::act)
        continue_forward(saga);
    else
        continue_compensation(saga);
}

} // namespace stacksaga
