#include "core/saga/saga_engine.hpp"

#include "core/common/retry.hpp"
#include "core/saga/saga_children.hpp"
#include "core/saga/saga_compensation.hpp"
#include "core/saga/saga_deadline.hpp"

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

void open_stage(SagaState &saga, std::int16_t stage) {
    bool waits_for_signal = false;
    bool has_crashed = false;
    // All steps of the stage get their work before any crash is charged or signal taken: both may
    // settle the saga, which must see the stage as opened and not open it once more.
    for (const Step &s : saga.definition->steps) {
        if (s.stage != stage)
            continue;
        has_crashed |= add_work(saga, s, first_work(saga, s, saga.now, 0));
        waits_for_signal = waits_for_signal || s.waits_for() == StepWait::signal;
    }
    if (has_crashed)
        charge_crashes(saga, stage, Direction::act);
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

/// Where a step of the open stage stands.
enum class Stand : std::uint8_t {
    done,
    open,      ///< it has work, or has not begun
    undecided, ///< it waits for a person
    failed,    ///< for good
};

Stand stand_of(SagaState &saga, const Step &s) {
    if (has_acted(saga, s.no))
        return Stand::done;
    if (const std::optional<Work> work = find_work(saga, s.no, Direction::act))
        return is_kept(saga, *work) ? Stand::undecided : Stand::open;
    if (last_failed_attempt(saga, s.no, Direction::act) == 0)
        return Stand::open;
    return s.irreversible && is_in_doubt(saga, s.no) ? Stand::undecided : Stand::failed;
}

/// The open stage of a saga that acts, in short.
struct Stage {
    std::int16_t no;
    const Step *failed = nullptr;    ///< the first, or the one that the event is about
    const Step *undecided = nullptr; ///< the first
    bool any_parks = false;          ///< of those that have failed
    bool any_compensates = false;
};

Stage look_at_stage(SagaState &saga, const Cause &cause) {
    Stage stage{.no = open_stage_of(saga)};
    for (const Step &s : saga.definition->steps) {
        if (s.stage != stage.no)
            continue;
        const Stand stand = stand_of(saga, s);
        if (stand == Stand::undecided && stage.undecided == nullptr)
            stage.undecided = &s;
        if (stand != Stand::failed)
            continue;
        (s.on_failure == OnFailure::park ? stage.any_parks : stage.any_compensates) = true;
        if (stage.failed == nullptr || cause.step == &s)
            stage.failed = &s;
    }
    return stage;
}

/// An irreversible step is done: the pending compensation is void, and the saga goes on.
void void_request(SagaState &saga) {
    if (!saga.row.compensation_requested)
        return;
    for (const Step &s : saga.definition->steps)
        if (s.irreversible && has_acted(saga, s.no))
            saga.changes.voided_request = {.request = *saga.row.compensation_requested,
                                           .step_no = s.no};
    saga.row.compensation_requested.reset();
    if (!saga.is_parked()) {
        saga.row.failed_step.reset();
        saga.row.error.reset();
    }
}

/// Whether the saga is still parked for the step that it says.
bool is_parked_for(SagaState &saga, const Step &s, bool failures_park) {
    const Stand stand = stand_of(saga, s);
    return stand == Stand::undecided || (stand == Stand::failed && failures_park);
}

void park_act(SagaState &saga, const Stage &stage, const Step &step, const Cause &cause) {
    std::string_view error = cause.error;
    if (cause.step != &step || error.empty())
        error = stage.failed == &step ? why_failed(saga, step.no)
                                      : "the outcome of an irreversible step is not known";
    park_saga(saga, step, Direction::act, error);
}

/// Parks the saga for a step of the open stage that needs a person, if one does.
bool park_for_stage(SagaState &saga, const Stage &stage, bool failures_park, const Cause &cause) {
    if (saga.is_parked() && saga.row.parked_step &&
        is_parked_for(saga, saga.definition->step(*saga.row.parked_step), failures_park))
        return true;
    const Step *step = stage.undecided;
    if (step == nullptr && failures_park)
        step = stage.failed;
    if (step == nullptr)
        return false;
    park_act(saga, stage, *step, cause);
    return true;
}

bool is_opened(SagaState &saga, std::int16_t stage) {
    return std::any_of(saga.definition->steps.begin(), saga.definition->steps.end(),
                       [&](const Step &s) {
                           return s.stage == stage &&
                                  (has_acted(saga, s.no) || find_work(saga, s.no, Direction::act));
                       });
}

/// The saga runs again, or is suspended as before.
void leave_park(SagaState &saga) {
    if (saga.row.parked_at && !saga.is_suspended()) // a suspension moves it when it ends
        move_deadline(saga, saga.now - *saga.row.parked_at);
    change_status(saga, Direction::act,
                  {.to = saga.is_suspended() ? Status::suspended : Status::running});
}

/// The saga goes on with its open stage, or ends.
void run_on(SagaState &saga, const Stage &stage) {
    if (saga.is_parked())
        leave_park(saga);
    if (saga.is_suspended())
        return;
    if (stage.no > saga.definition->stages)
        change_status(saga, Direction::act, {.to = Status::completed});
    arrange_work(saga);
    if (is_at_rest(saga.row.status) || saga.stands_still())
        return;
    if (is_opened(saga, stage.no))
        take_signals(saga);
    else
        open_stage(saga, stage.no);
}

/// Parks the saga, whose deadline has passed, for the first step that is not done.
void park_at_deadline(SagaState &saga, const Stage &stage) {
    if (saga.is_parked() && saga.row.parked_step && !has_acted(saga, *saga.row.parked_step))
        return;
    for (const Step &s : saga.definition->steps)
        if (s.stage == stage.no && !has_acted(saga, s.no)) {
            park_saga(saga, s, Direction::act, *saga.row.error);
            return;
        }
}

/// Decides for a saga that acts, from the steps done, failed, in flight and in doubt.
void settle_forward(SagaState &saga, const Cause &cause) {
    // The order is the order of precedence. A pivot that is done voids every request, so it comes
    // first. A failure only adds a request; whether the saga compensates now depends on an open
    // pivot, whose outcome decides whether it may. Parking comes after that, since a saga that
    // compensates needs no person for its failed step. Running on comes last, where nothing of this
    // applies.
    const Stage stage = look_at_stage(saga, cause);
    const bool is_past = is_past_pivot(saga);
    if (is_past)
        void_request(saga);
    const bool parks = is_past || (stage.any_parks && !stage.any_compensates &&
                                   saga.row.compensation_requested != CompensationRequest::cancel);
    if (stage.failed != nullptr && !parks)
        request_compensation(saga, CompensationRequest::failure,
                             {stage.failed, cause.step == stage.failed
                                                ? cause.error
                                                : why_failed(saga, stage.failed->no)});
    const bool waits = has_open_pivot(saga);
    if (saga.row.compensation_requested && !waits && !parks_at_deadline(saga)) {
        start_compensation(saga);
        return;
    }
    if (park_for_stage(saga, stage, parks, cause)) {
        note_row(saga);
        return;
    }
    if (parks_at_deadline(saga) && !waits && stage.no <= saga.definition->stages) {
        park_at_deadline(saga, stage);
        note_row(saga);
        return;
    }
    if (stage.no > saga.definition->stages)
        saga.row.compensation_requested.reset(); // its last steps were in flight, and are done
    note_row(saga);
    run_on(saga, stage);
}

bool has_attempts_left(const SagaState &saga, const Step &step, const Work &work) {
    const RetryPolicy &policy = saga.definition->policy(step, work.direction);
    return policy.max_attempts == 0 || work.attempt - work.attempt_base < policy.max_attempts;
}

/// A child is asked by nobody: its end is known here.
bool can_verify(const Step &step, const Work &work) {
    return step.has_verify && (work.falling_back || step.waits_for() != StepWait::child);
}

void try_again(SagaState &saga, const Step &step, const Work &work, const Failure &f, bool in_doubt,
               double random) {
    if (f.released_until) {
        pause_work(saga, work, *f.released_until, in_doubt, false);
        return;
    }
    const RetryPolicy &policy = saga.definition->policy(step, work.direction);
    const std::int64_t delay = f.retry_after_us.value_or(
        delay_before(work.attempt - work.attempt_base + 1, policy, random));
    ++saga.changes.retries;
    // Not in the past: sessions that have looked since then begin their searches behind it.
    const std::int64_t due_at = std::max(saga.now, time_plus(f.since, delay));
    pause_work(saga, work, due_at, in_doubt, false);
}

void compensation_attempt_failed(SagaState &saga, const Step &step, const Work &work,
                                 const Failure &failure, double random) {
    const Outcome outcome = decide({.direction = work.direction,
                                    .failure_class = failure.failure_class,
                                    .attempts_left = has_attempts_left(saga, step, work),
                                    .has_verify = false,
                                    .irreversible = false,
                                    .in_doubt = false,
                                    .on_failure = OnFailure::compensate});
    if (outcome == Outcome::retry)
        try_again(saga, step, work, failure, !failure.outcome_known, random);
    else
        remove_work(saga, work.step_no, work.direction);
}

/// Handles a failed action while the saga acts.
void action_failed(SagaState &saga, const Step &step, const Work &work, const Failure &failure,
                   bool in_doubt, bool may_verify, double random) {
    switch (decide({.direction = Direction::act,
                    .failure_class = failure.failure_class,
                    .attempts_left = has_attempts_left(saga, step, work),
                    .has_verify = may_verify && can_verify(step, work),
                    .irreversible = step.irreversible,
                    .in_doubt = in_doubt,
                    .on_failure = step.on_failure})) {
    case Outcome::retry:
        try_again(saga, step, work, failure, in_doubt, random);
        break;
    case Outcome::verify:
        verify_work(saga, work, saga.now, 0);
        break;
    case Outcome::give_up:
    case Outcome::park:
        give_up(saga, step, work, in_doubt);
        break;
    }
}

/// Nothing but its own row can follow an attempt of this saga that is tried again.
bool runs_freely(const SagaState &saga) {
    return saga.row.status == Status::running && !saga.is_suspended() && !saga.stands_still();
}

/// Whether a late report leaves the step's row as it is: an earlier attempt is as much in doubt as
/// before, or the step has failed for good. A release takes back the charge of the retry that
/// waits.
bool changes_no_row(SagaState &saga, const Step &step, const Work &work, const Failure &failure,
                    bool in_doubt) {
    if (!is_late(work))
        return false;
    const std::optional<Work> row = find_work(saga, step.no, Direction::act);
    if (failure.released_until && row && !row->verifying && !is_kept(saga, *row))
        return false;
    return in_doubt || (!step.irreversible && !row);
}

/// The attempt as its step's row counts it now that it has ended: a release is not charged.
Work counted(const Work &work, const Failure &failure) {
    Work attempt = work;
    attempt.attempt_base += failure.released_until ? 1 : 0;
    attempt.releases = failure.released_until ? work.releases + 1 : 0;
    return attempt;
}

} // namespace

bool is_late(const Work &work) {
    return work.lease && !work.is_claimed();
}

NewWork first_work(const SagaState &saga, const Step &step, std::int64_t due_at,
                   std::int32_t attempt) {
    NewWork work{.direction = Direction::act, .due_at = due_at, .attempt = attempt};
    const StepWait wait = step.waits_for();
    if (wait == StepWait::time)
        work.due_at = time_plus(due_at, step.delay);
    if (wait == StepWait::time || (wait == StepWait::signal && due_at <= saga.now))
        work.started_at = due_at;
    if (wait == StepWait::signal && work.started_at)
        work.due_at = step.timeout == no_timeout ? never : time_plus(due_at, step.timeout);
    return work;
}

void give_up(SagaState &saga, const Step &step, const Work &work, bool in_doubt) {
    if (step.irreversible && in_doubt) {
        keep_work(saga, work);
        return;
    }
    remove_work(saga, work.step_no, work.direction);
    if (step.has_fallback && !work.falling_back && !in_doubt)
        add_work(saga, step,
                 {.direction = Direction::act,
                  .due_at = saga.now,
                  .attempt = work.attempt,
                  .falling_back = true});
}

bool is_past_dedupe_retention(SagaState &saga, const Step &step, Direction direction) {
    if (!saga.dedupe_retention_us || step.idempotent)
        return false;
    const std::optional<Doubt> doubt = find_doubt(saga, step.no, direction);
    return doubt && time_plus(doubt->since, *saga.dedupe_retention_us) < saga.now;
}

bool withhold_repetition(SagaState &saga, const Step &step, const Work &work) {
    if (work.attempt == 0 || (step.waits_for() == StepWait::child && !work.falling_back) ||
        !is_past_dedupe_retention(saga, step, work.direction))
        return false;
    if (work.direction == Direction::compensate) {
        remove_work(saga, work.step_no, work.direction);
        settle(saga, {&step, "the compensation is in doubt for longer than its service remembers "
                             "the key"});
        return true;
    }
    if (can_verify(step, work)) {
        verify_work(saga, work, saga.now, 0);
        return true;
    }
    keep_work(saga, work);
    settle(saga, {&step, "the step is in doubt for longer than its service remembers the key"});
    return true;
}

void settle(SagaState &saga, const Cause &cause) {
    if (is_final(saga.row.status))
        return;
    // No else: a saga that starts to compensate in the first call gets the work of its first
    // compensations in the second one, in the same transaction.
    if (saga.acts())
        settle_forward(saga, cause);
    if (!saga.acts() && !is_final(saga.row.status))
        settle_backward(saga, cause);
    arrange_work(saga);
}

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
                    Value published, SettledBy settled_by) {
    // The effect first: the decisions below ask has_acted(). The work goes before them as well,
    // since a stage is complete when no live work of it is left.
    write_effect(saga, work, output, published, settled_by);
    remove_work(saga, work.step_no, work.direction);
    if (runs_freely(saga)) {
        advance(saga, step);
        return;
    }
    // A late answer and a person make a saga go on that its deadline has parked; what it waited for
    // does not.
    if (settled_by == SettledBy::answer ? is_late(work) : settled_by != SettledBy::verify)
        end_deadline_park(saga);
    settle(saga, {});
}

void step_failed(SagaState &saga, const Step &step, const Work &ended, const Failure &failure,
                 double random) {
    // The failure first: whether the step is in doubt, and which attempt was its last, is read from
    // the failures written so far.
    if (failure.released_until)
        write_release(saga, ended, failure.error);
    else
        write_failure(saga, ended, failure);
    const Cause cause = failure.released_until ? Cause{} : Cause{&step, failure.error};
    const Work work = counted(ended, failure);
    if (work.direction == Direction::compensate) {
        compensation_attempt_failed(saga, step, work, failure, random);
        settle(saga, cause);
        return;
    }
    const bool in_doubt =
        !failure.outcome_known || (work.attempt > 1 && is_in_doubt(saga, step.no));
    if (!saga.acts())
        remove_work(saga, work.step_no, work.direction); // and is not tried again
    else if (!changes_no_row(saga, step, work, failure, in_doubt))
        action_failed(saga, step, work, failure, in_doubt, true, random);
    const std::optional<Work> left = find_work(saga, step.no, Direction::act);
    if (!runs_freely(saga) || !left || is_kept(saga, *left))
        settle(saga, cause);
}

void lease_expired(SagaState &saga, const Step &step, const Work &work, double random,
                   const std::optional<Child> &child) {
    if (step.waits_for() == StepWait::child && !work.falling_back) {
        child_timed_out(saga, step, work, child, random);
        return;
    }
    // due_at is the earlier of lease and timeout; a message has no lease but the timeout.
    const std::int64_t ended_at = work.resume_at.value_or(work.due_at);
    const bool timed_out = *work.lease_until > ended_at || step.waits_for() == StepWait::answer;
    step_failed(saga, step, work,
                {.failure_class = FailureClass::unknown,
                 .outcome_known = false,
                 .error = timed_out ? "the attempt took longer than the step's timeout"
                                    : "the lease ran out",
                 .since = ended_at},
                random);
}

// ---------------------------------------------------------------------------------------- verify

namespace {

/// The attempt that verify has spoken of: the latest one in doubt.
Work verified_attempt(SagaState &saga, const Work &work) {
    Work attempt = work;
    if (const std::optional<Doubt> doubt = find_doubt(saga, work.step_no)) {
        attempt.attempt = doubt->attempt;
        attempt.lease = doubt->lease;
        attempt.started_at = doubt->claimed_at;
        attempt.falling_back = doubt->by_fallback;
    }
    return attempt;
}

/// The pause before verify is asked once more; nothing: it has been asked often enough.
std::optional<std::int64_t> pause_of_verify(const Step &step, const Work &work, double random) {
    const std::int64_t asked = std::int64_t{work.verify_attempts} + 1;
    if (!may_retry(asked, step.policy))
        return std::nullopt;
    return delay_before(asked + 1, step.policy, random);
}

/// Verify has not decided. The step is as much in doubt as before.
void verify_undecided(SagaState &saga, const Step &step, const Work &work, const Failure &failure,
                      bool asks_again, double random) {
    write_failure(saga, verified_attempt(saga, work), failure);
    if (asks_again)
        if (const std::optional<std::int64_t> pause = pause_of_verify(step, work, random)) {
            verify_work(saga, work, time_plus(saga.now, *pause), work.verify_attempts + 1);
            return;
        }
    if (!saga.acts() && (!step.compensable || step.compensate_when_started))
        remove_work(saga, step.no, Direction::act); // it is compensated without an answer
    else if (!saga.acts() || is_past_dedupe_retention(saga, step, Direction::act))
        keep_work(saga, work);
    else
        action_failed(saga, step, work, failure, true, false, random);
    settle(saga, {&step, failure.error});
}

} // namespace

void verify_answered(SagaState &saga, const Step &step, const Work &work,
                     const VerifyAnswer &answer, double random) {
    if (answer.outcome == VerifyOutcome::done) {
        step_completed(saga, step, verified_attempt(saga, work), answer.output, answer.published,
                       SettledBy::verify);
        return;
    }
    Failure failure{.failure_class = FailureClass::unknown,
                    .outcome_known = false,
                    .error = answer.error,
                    .since = saga.now,
                    .adds_to_error = true};
    if (answer.outcome == VerifyOutcome::never_done) {
        failure.failure_class = FailureClass::non_retryable;
        failure.outcome_known = failure.was_never_done = true;
        write_failure(saga, verified_attempt(saga, work), failure);
        if (saga.acts())
            action_failed(saga, step, work, failure, false, false, random);
        else
            remove_work(saga, step.no, Direction::act);
        settle(saga, {&step, failure.error});
        return;
    }
    const bool asks_again = answer.outcome == VerifyOutcome::not_done && step.irreversible;
    verify_undecided(saga, step, work, failure, asks_again, random);
}

void verify_failed(SagaState &saga, const Step &step, const Work &work, const Failure &error,
                   double random) {
    Failure failure = error;
    failure.failure_class = FailureClass::unknown;
    failure.outcome_known = false;
    verify_undecided(saga, step, work, failure, error.failure_class == FailureClass::retryable,
                     random);
}

bool crashed_ahead(SagaState &saga, const Step &step, Direction direction,
                   std::string_view worker) {
    const bool is_done = direction == Direction::act ? !saga.acts() || has_acted(saga, step.no)
                                                     : has_compensated(saga, step.no);
    if (is_final(saga.row.status) || is_done || last_failed_attempt(saga, step.no, direction) > 0)
        return false;
    return add_crash(saga, step, direction, worker);
}

void charge_crashes(SagaState &saga, std::int16_t stage, Direction direction) {
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
                         .since = saga.now,
                         .is_crash = true},
                        0.5);
    }
}

void step_is_unusable(SagaState &saga, const Step &step, const Work &work, const Failure &failure) {
    Failure known = failure;
    Work attempt = work;
    if (work.verifying) { // of an attempt whose outcome stays unknown
        known.failure_class = FailureClass::unknown;
        known.outcome_known = false;
        attempt = verified_attempt(saga, work);
    }
    write_failure(saga, attempt, known);
    if (work.direction == Direction::act)
        keep_work(saga, work);
    else
        remove_work(saga, work.step_no, work.direction);
    settle(saga, {&step, failure.error});
}

bool saga_is_unusable(SagaState &saga, std::string_view error) {
    if (is_at_rest(saga.row.status))
        return false;
    for (const WorkRow &row : saga.work) {
        const Work &work = row.work;
        if (!row.is_live() || work.purpose != WorkPurpose::step ||
            work.direction != saga.row.direction)
            continue;
        park_saga(saga, saga.definition->step(work.step_no), work.direction, error);
        arrange_work(saga);
        return true;
    }
    return false;
}

std::int64_t attempt_deadline(const SagaState &saga, const Step &step, Direction direction) {
    const std::int64_t timeout = time_plus(saga.now, step.timeout);
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
        if (s.waits_for() != StepWait::signal || !saga.acts() || saga.is_suspended() ||
            is_final(saga.row.status))
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

// ------------------------------------------------------------------------------------- resuming

void end_suspension(SagaState &saga) {
    if (saga.row.suspended_at)
        move_deadline(saga, saga.now - *saga.row.suspended_at);
    saga.row.suspended_at.reset();
    if (saga.row.parked_at)
        saga.row.parked_at = saga.now;
    if (saga.row.status == Status::suspended) {
        Status to = Status::compensating;
        if (saga.acts())
            to = has_begun(saga) ? Status::running : Status::pending;
        change_status(saga, saga.row.direction, {.to = to});
    }
    note_row(saga);
    arrange_work(saga);
}

} // namespace stacksaga::core
