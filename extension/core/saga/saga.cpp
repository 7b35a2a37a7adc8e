#include "core/saga/saga.hpp"

namespace stacksaga::core {

namespace {

WorkRow *find_row(SagaState &saga, WorkPurpose purpose, std::int16_t step_no, Direction direction) {
    for (WorkRow &row : saga.work)
        if (row.work.purpose == purpose && row.work.step_no == step_no &&
            row.work.direction == direction)
            return &row;
    return nullptr;
}

WorkRow *find_live(SagaState &saga, std::int16_t step_no, Direction direction) {
    WorkRow *row = find_row(saga, WorkPurpose::step, step_no, direction);
    return row != nullptr && row->is_live() ? row : nullptr;
}

/// It waits for a signal, for an instant or for its child, which settles it.
bool is_waiting(const SagaState &saga, const Work &work) {
    if (work.purpose != WorkPurpose::step || work.falling_back || work.direction != Direction::act)
        return false;
    switch (saga.definition->step(work.step_no).waits_for()) {
    case StepWait::signal:
        return work.started_at.has_value();
    case StepWait::time:
        return true;
    case StepWait::child:
        return work.started_at.has_value();
    case StepWait::nothing:
    case StepWait::claim:
    case StepWait::answer:
        return false;
    }
    return false;
}

bool is_wait_for_child(const SagaState &saga, const Work &work) {
    return is_waiting(saga, work) &&
           saga.definition->step(work.step_no).waits_for() == StepWait::child;
}

bool is_act_in_flight(const SagaState &saga, const Work &work) {
    return work.purpose == WorkPurpose::step && work.direction == Direction::act &&
           (work.is_claimed() || work.verifying ||
            (is_wait_for_child(saga, work) && !is_kept(saga, work)));
}

void note_change(WorkRow &row) {
    if (row.state == RowState::stored)
        row.state = RowState::changed;
}

/// Not in the table.
bool is_new(const WorkRow &row) {
    return row.state == RowState::added || row.state == RowState::gone;
}

/// Work of a suspended saga, and work not begun of one that stands still.
bool is_held_back(const SagaState &saga, const Work &work) {
    if (saga.is_suspended())
        return true;
    if (!saga.stands_still() || work.is_claimed() || work.verifying)
        return false;
    return work.purpose == WorkPurpose::deadline ||
           !(is_waiting(saga, work) || is_kept(saga, work) || work.is_ahead());
}

/// An attempt of an action, which begins when the row is due. The end of a wait for a signal or an
/// instant is none; a wait for a child may begin with another child.
bool begins_action(const SagaState &saga, const Work &work) {
    if (work.purpose != WorkPurpose::step || work.direction != Direction::act ||
        work.is_claimed() || work.verifying || work.resume_at.value_or(work.due_at) == never)
        return false;
    return !is_waiting(saga, work) || is_wait_for_child(saga, work);
}

enum class Hold : std::uint8_t { nothing, of_saga, of_definition };

Hold find_hold(const SagaState &saga, const Work &work) {
    if (is_held_back(saga, work))
        return Hold::of_saga;
    return saga.is_paused && begins_action(saga, work) ? Hold::of_definition : Hold::nothing;
}

bool arrange(const SagaState &saga, Work &work) {
    const Hold hold = find_hold(saga, work);
    const bool is_held = hold != Hold::nothing;
    const bool is_held_back = hold == Hold::of_definition;
    if (is_held == work.resume_at.has_value() && is_held_back == work.is_held_back)
        return false;
    work.is_held_back = is_held_back;
    if (is_held && !work.resume_at) {
        work.resume_at = work.due_at;
        work.due_at = never;
    } else if (!is_held && work.resume_at) {
        work.due_at = *work.resume_at;
        work.resume_at.reset();
    }
    return true;
}

void add_row(SagaState &saga, Work work) {
    arrange(saga, work);
    WorkRow *row = find_row(saga, work.purpose, work.step_no, work.direction);
    if (row == nullptr)
        saga.work.push(saga.memory, {.work = work, .state = RowState::added, .wakes = true});
    else
        *row = {.work = work,
                .state = is_new(*row) ? RowState::added : RowState::changed,
                .wakes = true};
}

void remove_row(WorkRow &row) {
    row.state = is_new(row) ? RowState::gone : RowState::removed;
}

/// Another instant, which holds once nothing holds the row back.
void make_due(const SagaState &saga, Work &work, std::int64_t due_at) {
    work.due_at = due_at;
    work.resume_at.reset();
    arrange(saga, work);
}

void note_effect(SagaState &saga, const Effect &effect) {
    const auto i = static_cast<std::size_t>(effect.step_no - 1);
    if (effect.direction == Direction::compensate) {
        saga.progress.compensated[i] = true;
        return;
    }
    saga.progress.acted[i] = true;
    saga.progress.acted_by_fallback[i] = effect.by_fallback;
    saga.progress.acted_by_person[i] = effect.settled_by == SettledBy::person;
}

void note_failure(SagaState &saga, const NewFailure &failure) {
    const PastFailure past{.step_no = failure.step_no,
                           .direction = failure.direction,
                           .attempt = failure.attempt,
                           .failure_class = failure.failure.failure_class,
                           .outcome_known = failure.failure.outcome_known,
                           .by_fallback = failure.by_fallback,
                           .lease = failure.lease,
                           .started_at = failure.started_at,
                           .failed_at = failure.failure.since};
    for (PastFailure &f : saga.progress.failures)
        if (f.step_no == past.step_no && f.direction == past.direction &&
            f.attempt == past.attempt) {
            f = past;
            return;
        }
    saga.progress.failures.push(saga.memory, past);
}

void note_settled(SagaState &saga, const Settled &settled) {
    for (PastFailure &f : saga.progress.failures)
        if (settled.concerns(f.step_no, f.direction, f.attempt))
            f.outcome_known = true;
}

} // namespace

// ------------------------------------------------------------------------------------------- work

std::optional<Work> find_work(const SagaState &saga, std::int16_t step_no, Direction direction) {
    for (const WorkRow &row : saga.work)
        if (row.is_live() && row.work.is(step_no, direction) && !row.work.is_ahead())
            return row.work;
    return std::nullopt;
}

bool is_in_flight(const SagaState &saga, std::int16_t step_no) {
    const std::optional<Work> work = find_work(saga, step_no, Direction::act);
    return work && is_act_in_flight(saga, *work);
}

bool waits_for_child(const SagaState &saga, std::int16_t step_no) {
    const std::optional<Work> work = find_work(saga, step_no, Direction::act);
    return work && is_wait_for_child(saga, *work);
}

bool has_acts_in_flight(const SagaState &saga) {
    return std::any_of(saga.work.begin(), saga.work.end(), [&](const WorkRow &row) {
        return row.is_live() && is_act_in_flight(saga, row.work);
    });
}

bool is_kept(const SagaState &saga, const Work &work) {
    if (work.resume_at.value_or(work.due_at) != never || work.is_claimed() || work.verifying)
        return false;
    return work.falling_back || !work.started_at ||
           saga.definition->step(work.step_no).waits_for() != StepWait::signal;
}

bool may_begin(const SagaState &saga, const Work &work) {
    if (work.is_claimed())
        return true;
    return !saga.ancestry.is_suspended && find_hold(saga, work) == Hold::nothing;
}

bool add_work(SagaState &saga, const Step &step, const NewWork &work) {
    Work made{.step_no = step.no,
              .direction = work.direction,
              .due_at = work.due_at,
              .attempt = work.attempt,
              .attempt_base = work.attempt,
              .lease = work.lease,
              .started_at = work.started_at,
              .verifying = work.verifying,
              .falling_back = work.falling_back};
    const WorkRow *row = find_live(saga, step.no, work.direction);
    const bool has_crashed = row != nullptr && row->work.is_ahead();
    if (has_crashed) {
        ++made.attempt;
        made.worker = row->work.worker;
    }
    add_row(saga, made);
    return has_crashed;
}

bool add_crash(SagaState &saga, const Step &step, Direction direction, std::string_view worker) {
    if (find_live(saga, step.no, direction) != nullptr)
        return false;
    add_row(saga, {.step_no = step.no,
                   .direction = direction,
                   .due_at = never,
                   .attempt = 1,
                   .worker = worker});
    return true;
}

void remove_work(SagaState &saga, std::int16_t step_no, Direction direction) {
    if (WorkRow *row = find_live(saga, step_no, direction))
        remove_row(*row);
}

void add_deadline(SagaState &saga) {
    add_row(saga, {.step_no = no_step,
                   .direction = Direction::act,
                   .purpose = WorkPurpose::deadline,
                   .due_at = *saga.deadline_at});
}

void remove_deadline(SagaState &saga) {
    WorkRow *row = find_row(saga, WorkPurpose::deadline, no_step, Direction::act);
    if (row != nullptr && row->is_live())
        remove_row(*row);
}

void move_deadline(SagaState &saga, std::int64_t by_us) {
    if (!saga.deadline_at || by_us <= 0) // the clock was ahead when the time began
        return;
    saga.deadline_at = time_plus(*saga.deadline_at, by_us);
    saga.changes.moves_deadline = true;
    WorkRow *row = find_row(saga, WorkPurpose::deadline, no_step, Direction::act);
    if (row == nullptr || !row->is_live())
        return;
    make_due(saga, row->work, *saga.deadline_at);
    note_change(*row);
}

void remove_idle_acts(SagaState &saga) {
    for (WorkRow &row : saga.work)
        if (row.is_live() && row.work.direction == Direction::act &&
            !is_act_in_flight(saga, row.work))
            remove_row(row);
}

void keep_work(SagaState &saga, const Work &work) {
    WorkRow *row = find_live(saga, work.step_no, work.direction);
    if (row == nullptr) {
        add_row(saga, {.step_no = work.step_no,
                       .direction = work.direction,
                       .due_at = never,
                       .attempt = work.attempt,
                       .attempt_base = work.attempt_base,
                       .lease = work.lease,
                       .started_at = work.started_at.value_or(saga.now),
                       .falling_back = work.falling_back});
        return;
    }
    pause_work(saga, work, never, true, false);
    row->work.started_at = work.started_at.value_or(saga.now);
}

void verify_work(SagaState &saga, const Work &work, std::int64_t due_at, std::int32_t attempts) {
    pause_work(saga, work, due_at, true, true);
    if (WorkRow *row = find_live(saga, work.step_no, work.direction))
        row->work.verify_attempts = attempts;
}

void pause_work(SagaState &saga, const Work &work, std::int64_t due_at, bool keep_lease,
                bool verifying) {
    WorkRow *row = find_live(saga, work.step_no, work.direction);
    if (row == nullptr)
        return;
    Work &w = row->work;
    w.attempt = work.attempt;
    w.attempt_base = work.attempt_base;
    w.releases = work.releases;
    w.lease = keep_lease ? work.lease : std::nullopt;
    w.lease_until.reset();
    w.verifying = verifying;
    w.verify_attempts = 0;
    w.deferred = false;
    make_due(saga, w, due_at);
    row->wakes = true;
    note_change(*row);
}

void defer_work(SagaState &saga, const Work &work, std::int64_t due_at) {
    WorkRow *row = find_live(saga, work.step_no, work.direction);
    if (row == nullptr)
        return;
    row->work.due_at = due_at;
    row->work.deferred = true;
    note_change(*row);
}

void start_counting_anew(SagaState &saga, const Work &work, bool verifying) {
    WorkRow *row = find_live(saga, work.step_no, work.direction);
    if (row == nullptr)
        return;
    Work &w = row->work;
    w.attempt_base = w.attempt;
    w.releases = 0;
    w.lease_until.reset();
    w.verifying = verifying;
    w.verify_attempts = 0;
    make_due(saga, w, saga.now);
    row->wakes = true;
    note_change(*row);
}

void defer_for_ancestors(SagaState &saga, const Work &work, std::int64_t due_at) {
    for (WorkRow &row : saga.work)
        if (row.is_live() && row.work.purpose == work.purpose && row.work.step_no == work.step_no &&
            row.work.direction == work.direction) {
            make_due(saga, row.work, due_at);
            note_change(row);
        }
}

void claim_work(SagaState &saga, const Work &attempt, std::int64_t lease_until,
                std::int64_t due_at) {
    WorkRow *row = find_live(saga, attempt.step_no, attempt.direction);
    if (row == nullptr)
        return;
    Work &w = row->work;
    w.attempt = attempt.attempt;
    w.lease = attempt.lease;
    w.lease_until = lease_until;
    w.started_at = saga.now;
    w.place_at = w.due_at;
    make_due(saga, w, due_at);
    w.worker = attempt.worker;
    w.deferred = false;
    note_change(*row);
}

void extend_work(SagaState &saga, const Work &work, std::int64_t lease_until, std::int64_t due_at) {
    WorkRow *row = find_live(saga, work.step_no, work.direction);
    if (row == nullptr)
        return;
    row->work.lease_until = lease_until;
    (row->work.resume_at ? *row->work.resume_at : row->work.due_at) = due_at;
    note_change(*row);
}

void arrange_work(SagaState &saga) {
    for (WorkRow &row : saga.work)
        if (row.is_live() && arrange(saga, row.work)) {
            row.wakes = !row.work.resume_at;
            note_change(row);
        }
}

void delay_steps(SagaState &saga, std::int64_t delay) {
    if (delay == 0) // overdue work stays before work that became due later
        return;
    const std::int64_t earliest = time_plus(saga.now, delay);
    for (WorkRow &row : saga.work) {
        const Work &w = row.work;
        if (!row.is_live() || w.purpose != WorkPurpose::step || w.is_claimed() ||
            w.due_at >= earliest)
            continue;
        const bool waits_for_signal =
            saga.definition->step(w.step_no).waits_for() == StepWait::signal && w.started_at &&
            !w.falling_back;
        if (waits_for_signal)
            continue;
        row.work.due_at = earliest;
        note_change(row);
    }
}

// --------------------------------------------------------------------------------------- progress

namespace {

void begin_effects(SagaState &saga) {
    saga.progress.acted.assign(saga.memory, saga.definition->steps.size());
    saga.progress.acted_by_fallback.assign(saga.memory, saga.definition->steps.size());
    saga.progress.acted_by_person.assign(saga.memory, saga.definition->steps.size());
    saga.progress.compensated.assign(saga.memory, saga.definition->steps.size());
    saga.progress.has_effects = true;
}

void begin_failures(SagaState &saga) {
    saga.progress.failures.clear();
    saga.progress.has_failures = true;
}

void begin_releases(SagaState &saga) {
    saga.progress.releases.clear();
    saga.progress.has_releases = true;
}

/// As require_effects().
void require_failures(SagaState &saga) {
    if (saga.progress.has_failures)
        return;
    begin_failures(saga);
    saga.source->load_failures(saga);
    for (const Settled &settled : saga.changes.settled)
        note_settled(saga, settled);
    for (const NewFailure &failure : saga.changes.failures)
        note_failure(saga, failure);
}

/// As require_effects().
void require_releases(SagaState &saga) {
    if (saga.progress.has_releases)
        return;
    begin_releases(saga);
    saga.source->load_releases(saga);
    for (const NewRelease &r : saga.changes.releases)
        saga.progress.releases.push(saga.memory, r.release);
}

} // namespace

void begin_progress(SagaState &saga) {
    begin_effects(saga);
    begin_failures(saga);
    begin_releases(saga);
}

void require_effects(SagaState &saga) {
    if (saga.progress.has_effects)
        return;
    begin_effects(saga);
    saga.source->load_effects(saga);
    for (const Effect &effect : saga.changes.effects)
        note_effect(saga, effect);
}

bool has_acted(SagaState &saga, std::int16_t step_no) {
    require_effects(saga);
    return saga.progress.acted[static_cast<std::size_t>(step_no - 1)];
}

bool has_compensated(SagaState &saga, std::int16_t step_no) {
    require_effects(saga);
    return saga.progress.compensated[static_cast<std::size_t>(step_no - 1)];
}

bool was_done_by_fallback(SagaState &saga, std::int16_t step_no) {
    return has_acted(saga, step_no) &&
           saga.progress.acted_by_fallback[static_cast<std::size_t>(step_no - 1)];
}

bool was_done_by_person(SagaState &saga, std::int16_t step_no) {
    return has_acted(saga, step_no) &&
           saga.progress.acted_by_person[static_cast<std::size_t>(step_no - 1)];
}

std::optional<Doubt> find_doubt(SagaState &saga, std::int16_t step_no, Direction direction) {
    require_failures(saga);
    std::optional<Doubt> doubt;
    for (const PastFailure &f : saga.progress.failures) {
        if (f.step_no != step_no || f.direction != direction || f.outcome_known)
            continue;
        const std::int64_t since = std::min(f.started_at, doubt ? doubt->since : f.started_at);
        if (!doubt || f.attempt > doubt->attempt)
            doubt = {.attempt = f.attempt,
                     .lease = f.lease,
                     .by_fallback = f.by_fallback,
                     .claimed_at = f.started_at,
                     .since = since};
        doubt->since = since;
    }
    const bool is_done = doubt && (direction == Direction::act ? has_acted(saga, step_no)
                                                               : has_compensated(saga, step_no));
    return is_done ? std::nullopt : doubt;
}

bool is_in_doubt(SagaState &saga, std::int16_t step_no) {
    return find_doubt(saga, step_no).has_value();
}

std::optional<PastFailure> find_failure(SagaState &saga, std::int16_t step_no, std::int64_t lease) {
    require_failures(saga);
    for (const PastFailure &f : saga.progress.failures)
        if (f.step_no == step_no && f.lease == lease)
            return f;
    return std::nullopt;
}

std::int32_t last_failed_attempt(SagaState &saga, std::int16_t step_no, Direction direction) {
    require_failures(saga);
    std::int32_t last = 0;
    for (const PastFailure &f : saga.progress.failures)
        if (f.step_no == step_no && f.direction == direction)
            last = std::max(last, f.attempt);
    return last;
}

std::int32_t last_ended_attempt(SagaState &saga, std::int16_t step_no, Direction direction) {
    require_releases(saga);
    std::int32_t last = last_failed_attempt(saga, step_no, direction);
    for (const Release &r : saga.progress.releases)
        if (r.step_no == step_no && r.direction == direction)
            last = std::max(last, r.attempt);
    return last;
}

std::optional<Release> find_release(SagaState &saga, std::int16_t step_no, std::int64_t lease) {
    require_releases(saga);
    for (const Release &r : saga.progress.releases)
        if (r.step_no == step_no && r.lease == lease)
            return r;
    return std::nullopt;
}

std::string_view joined(const SagaState &saga, std::string_view earlier, std::string_view error) {
    if (earlier.empty())
        return error;
    const std::size_t size = earlier.size() + 2 + error.size();
    auto *text = static_cast<char *>(saga.memory.allocate(saga.memory.owner, size));
    char *end = std::copy(earlier.begin(), earlier.end(), text);
    *end++ = ';';
    *end++ = ' ';
    std::copy(error.begin(), error.end(), end);
    return {text, size};
}

std::string_view why_failed(SagaState &saga, std::int16_t step_no) {
    const std::int32_t attempt = last_failed_attempt(saga, step_no, Direction::act);
    std::optional<std::string_view> error;
    for (const NewFailure &f : saga.changes.failures) {
        if (f.step_no != step_no || f.direction != Direction::act || f.attempt != attempt)
            continue;
        if (f.failure.adds_to_error && !error)
            error = saga.source->find_error(saga, step_no, attempt);
        error = f.failure.adds_to_error ? joined(saga, *error, f.failure.error) : f.failure.error;
    }
    return error ? *error : saga.source->find_error(saga, step_no, attempt);
}

void write_effect(SagaState &saga, const Work &work, Value output, Value published,
                  SettledBy settled_by) {
    const Effect effect{.step_no = work.step_no,
                        .direction = work.direction,
                        .attempt = work.attempt,
                        .lease = work.lease,
                        .started_at = work.started_at.value_or(saga.now),
                        .worker = work.worker,
                        .output = output,
                        .published = published,
                        .by_fallback = work.falling_back,
                        .settled_by = settled_by};
    saga.changes.effects.push(saga.memory, effect);
    if (saga.progress.has_effects)
        note_effect(saga, effect);
}

void write_failure(SagaState &saga, const Work &work, const Failure &failure) {
    const NewFailure written{.step_no = work.step_no,
                             .direction = work.direction,
                             .attempt = work.attempt,
                             .lease = work.lease,
                             .started_at = work.started_at.value_or(saga.now),
                             .worker = work.worker,
                             .by_fallback = work.falling_back,
                             .failure = failure};
    saga.changes.failures.push(saga.memory, written);
    if (saga.progress.has_failures)
        note_failure(saga, written);
    if (failure.was_never_done)
        settle_outcomes(saga, {.step_no = work.step_no, .direction = work.direction});
}

void write_release(SagaState &saga, const Work &work, std::string_view reason) {
    const NewRelease written{.release = {.step_no = work.step_no,
                                         .direction = work.direction,
                                         .attempt = work.attempt,
                                         .lease = work.lease},
                             .started_at = work.started_at.value_or(saga.now),
                             .worker = work.worker,
                             .by_fallback = work.falling_back,
                             .reason = reason};
    saga.changes.releases.push(saga.memory, written);
    if (saga.progress.has_releases)
        saga.progress.releases.push(saga.memory, written.release);
}

void settle_outcomes(SagaState &saga, const Settled &settled) {
    for (NewFailure &f : saga.changes.failures)
        if (settled.concerns(f.step_no, f.direction, f.attempt))
            f.failure.outcome_known = true;
    saga.changes.settled.push(saga.memory, settled);
    if (saga.progress.has_failures)
        note_settled(saga, settled);
}

// ----------------------------------------------------------------------------------------- status

namespace {

bool is_same(const SagaRow &a, const SagaRow &b) {
    return a.status == b.status && a.direction == b.direction && a.failed_step == b.failed_step &&
           a.error == b.error && a.parked_step == b.parked_step &&
           a.parked_direction == b.parked_direction &&
           a.compensation_requested == b.compensation_requested &&
           a.suspended_at == b.suspended_at && a.parked_at == b.parked_at;
}

} // namespace

void note_row(SagaState &saga) {
    List<SagaRow> &rows = saga.changes.rows;
    if (is_same(saga.row, rows.empty() ? saga.stored : rows[rows.size() - 1]))
        return;
    // A change that leads to the same place as those before it and itself replaces them.
    while (!rows.empty()) {
        const SagaRow &from = rows.size() > 1 ? rows[rows.size() - 2] : saga.stored;
        if (from.status == saga.row.status ||
            !may_change(from.status, from.direction, saga.row.status, saga.row.direction,
                        saga.is_child))
            break;
        rows.pop();
    }
    rows.push(saga.memory, saga.row);
}

void change_status(SagaState &saga, Direction direction, const StatusChange &change) {
    SagaRow row{.status = change.to,
                .direction = direction,
                .parked_step = change.parked_step,
                .parked_direction = change.parked_direction,
                .compensation_requested = saga.row.compensation_requested,
                .suspended_at = saga.row.suspended_at};
    if (change.to != Status::running || row.compensation_requested) {
        row.failed_step = saga.row.failed_step ? saga.row.failed_step : change.failed_step;
        row.error = saga.row.error ? saga.row.error : change.error;
    }
    if (is_final(change.to)) {
        row.compensation_requested.reset();
        row.suspended_at.reset();
    }
    if (change.to == Status::parked && direction == Direction::act)
        row.parked_at = saga.row.parked_at.value_or(saga.now);
    saga.row = row;
    note_row(saga);
    if (!is_final(change.to))
        return;
    for (WorkRow &left : saga.work)
        if (left.is_live())
            remove_row(left);
    saga.changes.removes_notices = saga.definition->has_children;
    saga.changes.notifies_parent = saga.is_child;
}

} // namespace stacksaga::core
