#include "core/saga_engine.hpp"

#include "core/retry.hpp"
#include "core/saga_children.hpp"
#include "core/saga_compensation.hpp"

namespace stacksaga::core {

namespace {

/// While the saga runs, every step of the open stage that is not done has work.
bool stage_is_complete(const SagaState &saga, std::int16_t stage) {
    return std::none_of(saga.work.begin(), saga.work.end(), [&](const WorkRow &row) {
        return row.is_live() && row.work.purpose == WorkPurpose::step &&
               row.work.direction == Direction::act &&
               saga.definition->step(row.work.step_no).stage == stage;
    });
}

/// What a step's work looks like when its turn comes at `due_at`.
NewWork first_work(const SagaState &saga, const Step &step, std::int64_t due_at,
                   std::int32_t attempt) {
    NewWork work{.direction = Direction::act, .due_at = due_at, .attempt = attempt};
    const StepWait wait = step.waits_for();
    if (wait == StepWait::time)
        work.due_at = time_plus(due_at, step.delay_us);
    if (wait == StepWait::time || (wait == StepWait::signal && due_at <= saga.now))
        work.started_at = due_at;
    if (wait == StepWait::signal && work.started_at)
        work.due_at = step.timeout_us == no_timeout ? never : time_plus(due_at, step.timeout_us);
    return work;
}

void open_stage(SagaState &saga, std::int16_t stage) {
    bool waits_for_signal = false;
    bool has_died = false;
    for (const Step &s : saga.definition->steps) {
        if (s.stage != stage)
            continue;
        has_died |= add_work(saga, s, first_work(saga, s, saga.now, 0));
        waits_for_signal = waits_for_signal || s.waits_for() == StepWait::signal;
    }
    if (has_died)
        charge_deaths(saga, stage, Direction::act);
    if (waits_for_signal)
        take_signals(saga);
}

/// After `step` was done: the next stage, or the end.
void advance(SagaState &saga, const Step &step) {
    if (saga.row.status != Status::running || !stage_is_complete(saga, step.stage))
        return;
    if (step.stage < saga.definition->stages)
        open_stage(saga, static_cast<std::int16_t>(step.stage + 1));
    else
        change_status(saga, Direction::act, {.to = Status::completed});
}

/// A step of this stage that is neither done nor due.
const Step *find_blocked(SagaState &saga, std::int16_t stage) {
    for (const Step &s : saga.definition->steps) {
        if (s.stage != stage || has_acted(saga, s.no))
            continue;
        const bool is_due = find_work(saga, s.no, Direction::act) &&
                            (!is_kept(saga, s.no) || s.waits_for() == StepWait::signal);
        if (!is_due)
            return &s;
    }
    return nullptr;
}

/// The saga is parked for this action, and its answer is still wanted.
bool waits_for_answer(const SagaState &saga, const Step &step, const Work &work) {
    return saga.row.status == Status::parked && saga.acts() && work.direction == Direction::act &&
           saga.row.parked_step == step.no;
}

/// The saga was parked for this step, which is done now or tried again: it continues, unless a
/// sibling has failed meanwhile or has an unknown outcome too.
void unpark(SagaState &saga, const Step &step) {
    if (const Step *blocked = find_blocked(saga, step.stage))
        begin_compensation(saga, blocked, "a step failed while the saga was parked");
    else if (saga.row.status != Status::running)
        change_status(saga, Direction::act, {.to = Status::running});
}

/// The action has failed for good, and none of its attempts has an unknown outcome: its fallback is
/// tried, with attempts of its own.
bool fall_back(SagaState &saga, const Step &step, const Work &work, const Failure &f) {
    if (!step.has_fallback || work.falling_back || !saga.acts() ||
        f.failure_class == FailureClass::unknown || has_unknown_attempt(saga, step.no))
        return false;
    remove_work(saga, work.step_no, work.direction);
    add_work(saga, step,
             {.direction = Direction::act,
              .due_at = saga.now,
              .attempt = work.attempt,
              .falling_back = true});
    return true;
}

Outcome outcome_of(const SagaState &saga, const Step &step, const Work &work, const Failure &f) {
    const RetryPolicy &policy = saga.definition->policy(step, work.direction);
    return decide(
        {.direction = work.direction,
         .failure_class = f.failure_class,
         .attempts_left =
             policy.max_attempts == 0 || work.attempt - work.attempt_base < policy.max_attempts,
         .has_verify = step.has_verify && !work.falling_back && !f.was_verified && !f.outcome_known,
         .irreversible = step.irreversible && !f.outcome_known});
}

void try_again(SagaState &saga, const Step &step, const Work &work, const Failure &f,
               double random) {
    const RetryPolicy &policy = saga.definition->policy(step, work.direction);
    const std::int64_t delay = f.retry_after_us.value_or(
        delay_before(work.attempt - work.attempt_base + 1, policy, random));
    ++saga.changes.retries;
    // Not in the past: sessions that have looked since then begin their searches behind it.
    const std::int64_t due_at = std::max(saga.now, time_plus(f.since, delay));
    pause_work(saga, work, due_at, f.keep_lease, false);
}

/// An irreversible step whose outcome is unknown. It is not due again, but its late answer counts.
void park_unknown(SagaState &saga, const Step &step, const Work &work, const Failure &f) {
    if (f.keep_lease)
        pause_work(saga, work, never, true, false);
    else
        remove_work(saga, work.step_no, work.direction);
    park_saga(saga, step, work.direction, f.error);
}

/// An action that fails while the saga compensates is not tried again.
void failed_while_compensating(SagaState &saga, const Step &step, const Work &work,
                               const Failure &f) {
    if (step.has_verify && !work.falling_back && !f.outcome_known && !f.was_verified) {
        pause_work(saga, work, saga.now, f.keep_lease, true);
        return;
    }
    remove_work(saga, work.step_no, work.direction);
    bool happened = !f.outcome_known;
    if (step.irreversible && !happened) // an earlier attempt may have done it
        happened = is_doubtful(saga, step.no);
    settled_while_compensating(saga, step, happened);
}

/// The step has failed for good.
void give_up(SagaState &saga, const Step &step, const Work &work, const Failure &f,
             bool was_parked) {
    if (fall_back(saga, step, work, f)) {
        if (was_parked)
            unpark(saga, step);
        return;
    }
    remove_work(saga, work.step_no, work.direction);
    if (saga.row.status != Status::parked) // whose unknown step must be settled first
        begin_compensation(saga, &step, f.error);
}

} // namespace

void open_first_stage(SagaState &saga, std::int64_t due_at) {
    for (const Step &s : saga.definition->steps)
        if (s.stage == 1)
            add_work(saga, s, first_work(saga, s, due_at, 0));
    if (saga.deadline_at)
        add_deadline(saga);
}

void attempt_begins(SagaState &saga) {
    if (saga.row.status == Status::pending)
        change_status(saga, Direction::act, {.to = Status::running});
}

void step_completed(SagaState &saga, const Step &step, const Work &work, Value output,
                    Value published) {
    write_effect(saga, work, output, published);
    remove_work(saga, work.step_no, work.direction);
    if (work.direction == Direction::compensate) {
        compensation_done(saga);
    } else if (!saga.acts()) {
        settled_while_compensating(saga, step, true);
    } else {
        if (waits_for_answer(saga, step, work))
            unpark(saga, step);
        advance(saga, step);
    }
}

void step_failed(SagaState &saga, const Step &step, const Work &work, const Failure &failure,
                 double random) {
    const bool was_parked = waits_for_answer(saga, step, work);
    if (was_parked)
        change_status(saga, Direction::act, {.to = Status::running});
    write_failure(saga, work, failure);
    if (work.direction == Direction::act && !saga.acts()) {
        failed_while_compensating(saga, step, work, failure);
        return;
    }
    switch (outcome_of(saga, step, work, failure)) {
    case Outcome::retry:
        try_again(saga, step, work, failure, random);
        if (was_parked)
            unpark(saga, step);
        break;
    case Outcome::verify:
        pause_work(saga, work, saga.now, failure.keep_lease, true);
        if (was_parked)
            unpark(saga, step);
        break;
    case Outcome::give_up:
        give_up(saga, step, work, failure, was_parked);
        break;
    case Outcome::park:
        if (work.direction == Direction::compensate)
            compensation_failed(saga, step, failure.error);
        else
            park_unknown(saga, step, work, failure);
        break;
    }
}

void lease_expired(SagaState &saga, const Step &step, const Work &work, double random) {
    if (step.waits_for() == StepWait::child && !work.falling_back) {
        child_timed_out(saga, step, work, random);
        return;
    }
    // due_at is the earlier of lease and timeout; a message has no lease but the timeout.
    const bool timed_out = *work.lease_until > work.due_at || step.waits_for() == StepWait::answer;
    step_failed(saga, step, work,
                {.failure_class = FailureClass::unknown,
                 .outcome_known = false,
                 .error = timed_out ? "the attempt took longer than the step's timeout"
                                    : "the lease ran out",
                 .since = work.due_at,
                 .keep_lease = true},
                random);
}

bool died_ahead(SagaState &saga, const Step &step, Direction direction, std::string_view worker) {
    const bool is_done = direction == Direction::act ? !saga.acts() || has_acted(saga, step.no)
                                                     : has_compensated(saga, step.no);
    if (is_final(saga.row.status) || is_done || last_failed_attempt(saga, step.no, direction) > 0)
        return false;
    return add_death(saga, step, direction, worker);
}

void charge_deaths(SagaState &saga, std::int16_t stage, Direction direction) {
    for (const Step &s : saga.definition->steps) {
        if (saga.row.direction != direction || is_at_rest(saga.row.status))
            return; // one of them has failed for good
        const std::optional<Work> work = find_work(saga, s.no, direction);
        if (s.stage == stage && work && work->attempt > work->attempt_base)
            step_failed(saga, s, *work,
                        {.failure_class = FailureClass::retryable,
                         .outcome_known = true, // its transaction was undone
                         .error = crash_error,
                         .sqlstate = crash_sqlstate,
                         .since = saga.now},
                        0.5);
    }
}

void step_is_unusable(SagaState &saga, const Step &step, const Work &work, const Failure &failure) {
    write_failure(saga, work, failure);
    remove_work(saga, work.step_no, work.direction);
    park_saga(saga, step, work.direction, failure.error);
}

std::int64_t attempt_deadline(const SagaState &saga, const Step &step, Direction direction) {
    const std::int64_t timeout = time_plus(saga.now, step.timeout_us);
    const bool binds =
        direction == Direction::act && saga.deadline_at && *saga.deadline_at > saga.now;
    return binds ? std::min(timeout, *saga.deadline_at) : timeout;
}

// --------------------------------------------------------------------------- timers and signals

void timer_due(SagaState &saga, const Step &step, const Work &work, std::string_view worker) {
    Work attempt = work;
    attempt.attempt = work.attempt + 1;
    attempt.worker = worker;
    attempt_begins(saga);
    step_completed(saga, step, attempt, {});
}

void signal_due(SagaState &saga, const Step &step, const Work &work, std::string_view error) {
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
                 .error = error,
                 .since = saga.now},
                0);
}

void take_signals(SagaState &saga) {
    for (const Step &s : saga.definition->steps) {
        if (s.waits_for() != StepWait::signal || !saga.acts() || saga.is_suspended())
            continue;
        std::optional<Work> work = find_work(saga, s.no, Direction::act);
        if (!work || !work->started_at || work->falling_back)
            continue;
        const std::optional<Value> payload = take_signal(saga, s);
        if (!payload)
            continue;
        ++work->attempt;
        attempt_begins(saga);
        step_completed(saga, s, *work, *payload);
    }
}

bool deadline_passed(SagaState &saga) {
    if (!saga.deadline_at || *saga.deadline_at > saga.now || !saga.acts() ||
        is_at_rest(saga.row.status) || is_past_pivot(saga))
        return false;
    begin_compensation(saga, nullptr, "the deadline of the saga passed");
    return true;
}

void deadline_due(SagaState &saga) {
    remove_deadline(saga);
    deadline_passed(saga);
}

// ------------------------------------------------------------------------------------- resuming

namespace {

/// The first stage of which not every step is done; one more than there are when all are.
std::int16_t open_stage_of(SagaState &saga) {
    auto stage = static_cast<std::int16_t>(saga.definition->stages + 1);
    for (const Step &s : saga.definition->steps)
        if (s.stage < stage && !has_acted(saga, s.no))
            stage = s.stage;
    return stage;
}

/// Whether any attempt has begun.
bool has_begun(SagaState &saga) {
    return std::any_of(saga.definition->steps.begin(), saga.definition->steps.end(),
                       [&](const Step &s) {
                           const std::optional<Work> work = find_work(saga, s.no, Direction::act);
                           return (work && work->attempt > 0) || has_acted(saga, s.no) ||
                                  last_failed_attempt(saga, s.no, Direction::act) > 0;
                       });
}

void continue_forward(SagaState &saga) {
    const bool runs = saga.row.status == Status::parked || has_begun(saga);
    change_status(saga, Direction::act, {.to = runs ? Status::running : Status::pending});
    const std::int16_t stage = open_stage_of(saga);
    if (stage > saga.definition->stages) {
        change_status(saga, Direction::act, {.to = Status::completed});
        return;
    }
    for (const Step &s : saga.definition->steps)
        if (s.stage == stage && !has_acted(saga, s.no) && !find_work(saga, s.no, Direction::act))
            add_work(
                saga, s,
                first_work(saga, s, saga.now, last_failed_attempt(saga, s.no, Direction::act)));
    take_signals(saga);
}

} // namespace

void continue_saga(SagaState &saga) {
    if (saga.is_suspended())
        release_work(saga);
    if (saga.acts())
        continue_forward(saga);
    else
        continue_compensation(saga);
}

} // namespace stacksaga::core
