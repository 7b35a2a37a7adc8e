#include "core/retry.hpp"
#include "core/ring.hpp"
#include "core/token.hpp"

#include "src/saga.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/function.hpp"
#include "pg/random.hpp"
#include "src/limits.hpp"
#include "src/wake.hpp"

namespace stacksaga {

namespace {

using core::Direction;
using core::FailureClass;
using core::Status;

#define SAGA_COLUMNS                                                                               \
    "s.saga_id, s.token::bigint, s.ring_id, s.definition_id, s.status, s.direction, s.input, "     \
    "s.headers, s.deadline_at, s.slot, s.parked_step "

constinit pg::Statement lock_one{
    "SELECT " SAGA_COLUMNS "  FROM stacksaga.saga s"
    " WHERE s.saga_id = $1 AND s.token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   FOR NO KEY UPDATE"};
constinit pg::Statement lock_one_or_skip{
    "SELECT " SAGA_COLUMNS "  FROM stacksaga.saga s"
    " WHERE s.saga_id = $1 AND s.token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   FOR NO KEY UPDATE SKIP LOCKED"};

constinit pg::Statement select_work{
    "SELECT step_no, direction, due_at, attempt, lease, lease_until, started_at, verifying, worker"
    "  FROM stacksaga.work"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND step_no = $3 AND direction = $4"};
constinit pg::Statement insert_work{
    "INSERT INTO stacksaga.work (saga_id, token, ring_id, slot, step_no, direction, due_at, queue)"
    " VALUES ($1, $2::stacksaga.ring_token, $3, $4, $5, $6, $7, $8)"};
constinit pg::Statement delete_work{
    "DELETE FROM stacksaga.work"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND step_no = $3 AND direction = $4"};
constinit pg::Statement delete_unclaimed_acts{
    "DELETE FROM stacksaga.work"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND direction = 'act' AND lease_until IS NULL AND NOT verifying"};
constinit pg::Statement count_work{
    "SELECT count(*) FROM stacksaga.work"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND direction = $3"};
constinit pg::Statement delete_all_work{
    "DELETE FROM stacksaga.work"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};
constinit pg::Statement pause_work{
    "UPDATE stacksaga.work"
    "   SET due_at = $5, attempt = $6, lease = $7, lease_until = NULL, verifying = $8"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND step_no = $3 AND direction = $4"};

constinit pg::Statement insert_effect{
    "INSERT INTO stacksaga.effect (saga_id, token, step_no, direction, attempt, lease, started_at,"
    "       completed_at, worker, output)"
    " VALUES ($1, $2::stacksaga.ring_token, $3, $4, $5, $6, $7, $8, $9, $10)"};
constinit pg::Statement select_effects{
    "SELECT step_no, direction FROM stacksaga.effect"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};
constinit pg::Statement aggregate_results{
    "SELECT coalesce(jsonb_object_agg(($3::text[])[step_no], output), '{}') FROM stacksaga.effect"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND direction = 'act'"};
// A late answer to an attempt that was already counted as failed replaces its row.
constinit pg::Statement insert_failure{
    "INSERT INTO stacksaga.failure (saga_id, token, step_no, direction, attempt, lease,"
    "       error_class, outcome_known, started_at, finished_at, worker, sqlstate, error)"
    " VALUES ($1, $2::stacksaga.ring_token, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
    " ON CONFLICT (saga_id, step_no, direction, attempt, token) DO UPDATE"
    "   SET error_class = excluded.error_class, outcome_known = excluded.outcome_known,"
    "       finished_at = excluded.finished_at, sqlstate = excluded.sqlstate,"
    "       error = excluded.error"};
// Steps that may have happened although no marker says so.
constinit pg::Statement select_doubtful{
    "SELECT DISTINCT step_no FROM stacksaga.failure"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND direction = 'act' AND NOT outcome_known"};
constinit pg::Statement settle_outcomes{
    "UPDATE stacksaga.failure SET outcome_known = true"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND step_no = $3 AND direction = $4 AND NOT outcome_known"};
constinit pg::Statement select_given_up{
    "SELECT DISTINCT step_no FROM stacksaga.failure"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND direction = 'compensate'"};

constinit pg::Statement update_status{
    "UPDATE stacksaga.saga"
    "   SET status = $3, direction = $4, updated_at = $5, finished_at = $6,"
    "       failed_step = CASE WHEN $3 <> 'running' THEN coalesce(failed_step, $7) END,"
    "       error = CASE WHEN $3 <> 'running' THEN coalesce(error, $8) END,"
    "       parked_step = $9, parked_direction = $10"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

pg::Param param(Direction d) {
    return pg::param(core::name_of(d));
}
pg::Param param_lease(std::optional<int64> lease) {
    return lease ? pg::param(*lease) : pg::param_null(INT8OID);
}

struct StatusChange {
    Status to;
    std::optional<int16> failed_step{};
    std::optional<std::string_view> error{};
    std::optional<int16> parked_step{};
    std::optional<Direction> parked_direction{};
};

pg::Param param_step(std::optional<int16> no) {
    return no ? pg::param(*no) : pg::param_null(INT2OID);
}

void change_status(Saga &saga, Direction direction, const StatusChange &change) {
    std::optional<TimestampTz> finished_at;
    if (core::is_final(change.to))
        finished_at = saga.now;
    std::optional<std::string_view> parked_direction;
    if (change.parked_direction)
        parked_direction = core::name_of(*change.parked_direction);
    update_status.run(pg::param(saga.id), pg::param(saga.token),
                      pg::param(core::name_of(change.to)), param(direction),
                      pg::param_time(saga.now), pg::param_time(finished_at),
                      param_step(change.failed_step), pg::param(change.error),
                      param_step(change.parked_step), pg::param(parked_direction));
    saga.status = change.to;
    saga.direction = direction;
    saga.parked_step = change.parked_step;
    if (core::is_final(change.to) && saga.deadline_at)
        delete_all_work.run(pg::param(saga.id), pg::param(saga.token));
}

/// Makes a step due. Only a service can claim a queue step; a worker need not look at it before.
void add_work(const Saga &saga, const Step &step, Direction direction, TimestampTz due_at) {
    insert_work.run(pg::param(saga.id), pg::param(saga.token), pg::param(saga.ring_id),
                    pg::param(saga.slot), pg::param(step.no), param(direction),
                    pg::param_time(due_at),
                    step.kind == StepKind::queue ? pg::param(step.queue) : pg::param_null(TEXTOID));
}

void open_stage(const Saga &saga, int16 stage, TimestampTz due_at) {
    for (const Step &s : saga.definition->steps)
        if (s.stage == stage)
            add_work(saga, s, Direction::act, due_at);
    wake_workers_at_commit();
}

/// What has been done and undone: one flag for each step, by step_no - 1.
struct Progress {
    bool *acted;
    bool *compensated;
    bool *doubtful;
};

bool *flags(const Definition &d) {
    return static_cast<bool *>(palloc0(sizeof(bool) * d.steps.size()));
}

Progress read_progress(const Saga &saga) {
    Progress p{flags(*saga.definition), flags(*saga.definition), flags(*saga.definition)};
    pg::Rows effects = select_effects.run(pg::param(saga.id), pg::param(saga.token));
    for (uint64 i = 0; i < effects.count(); ++i)
        (effects.text(i, 1) == "act" ? p.acted : p.compensated)[effects.int2(i, 0) - 1] = true;
    return p;
}

void read_doubtful(const Saga &saga, Progress &p) {
    pg::Rows rows = select_doubtful.run(pg::param(saga.id), pg::param(saga.token));
    for (uint64 i = 0; i < rows.count(); ++i)
        p.doubtful[rows.int2(i, 0) - 1] = true;
}

bool is_alone(const Saga &saga, const Step &step) {
    const Definition &d = *saga.definition;
    return std::none_of(d.steps.begin(), d.steps.end(),
                        [&](const Step &s) { return s.stage == step.stage && s.no != step.no; });
}

/// `step` has just completed.
bool stage_is_complete(const Saga &saga, const Step &step) {
    if (is_alone(saga, step))
        return true;
    const Definition &d = *saga.definition;
    Progress p = read_progress(saga);
    return std::all_of(d.steps.begin(), d.steps.end(),
                       [&](const Step &s) { return s.stage != step.stage || p.acted[s.no - 1]; });
}

void park_saga(Saga &saga, const Step &step, Direction direction, std::string_view error) {
    std::optional<int16> failed_step;
    if (direction == Direction::act)
        failed_step = step.no;
    change_status(saga, saga.direction,
                  {.to = Status::parked,
                   .failed_step = failed_step,
                   .error = error,
                   .parked_step = step.no,
                   .parked_direction = direction});
}

bool work_remains(const Saga &saga, Direction d) {
    pg::Rows rows = count_work.run(pg::param(saga.id), pg::param(saga.token), param(d));
    return rows.int8(0, 0) > 0;
}

/// The compensations that failed for good: they have failures, no marker, and are due no more.
const Step *mark_given_up(const Saga &saga, Progress &p) {
    const Step *first = nullptr;
    pg::Rows rows = select_given_up.run(pg::param(saga.id), pg::param(saga.token));
    for (uint64 i = 0; i < rows.count(); ++i) {
        const Step &s = saga.definition->step(rows.int2(i, 0));
        if (p.compensated[s.no - 1])
            continue;
        p.compensated[s.no - 1] = true;
        if (first == nullptr || s.no < first->no)
            first = &s;
    }
    return first;
}

/// Starts the compensations of the last stage that still has something to undo, side by side; when
/// no stage has, the saga has failed, in order. No compensation is due when this is called.
void compensate_next(Saga &saga) {
    Progress p = read_progress(saga);
    read_doubtful(saga, p);
    const Step *given_up = mark_given_up(saga, p);
    for (int16 stage = saga.definition->stages; stage > 0; --stage) {
        bool any = false;
        for (const Step &s : saga.definition->steps) {
            bool undo = p.acted[s.no - 1] || (s.compensate_when_started && p.doubtful[s.no - 1]);
            if (s.stage != stage || !s.compensable || !undo || p.compensated[s.no - 1])
                continue;
            add_work(saga, s, Direction::compensate, saga.now);
            any = true;
        }
        if (any) {
            wake_workers_at_commit();
            return;
        }
    }
    if (given_up != nullptr)
        park_saga(saga, *given_up, Direction::compensate, "a compensation failed for good");
    else
        change_status(saga, Direction::compensate, {.to = Status::failed});
}

/// A claimed step has settled while the saga goes back. `happened`: it was done, or may have been;
/// past an irreversible step nothing is undone, and it is too late to go on.
void settled_on_the_way_back(Saga &saga, const Step &step, bool happened) {
    if (saga.status != Status::compensating)
        return;
    if (step.irreversible && happened)
        park_saga(saga, step, Direction::act,
                  "an irreversible step settled after the compensation had begun");
    else if (!work_remains(saga, Direction::act))
        compensate_next(saga);
}

/// Whether an irreversible step has been done.
bool is_past_pivot(const Saga &saga, const Progress &p) {
    const Definition &d = *saga.definition;
    return std::any_of(d.steps.begin(), d.steps.end(),
                       [&](const Step &s) { return s.irreversible && p.acted[s.no - 1]; });
}

bool anything_to_undo(const Saga &saga, Progress &p) {
    read_doubtful(saga, p);
    return std::any_of(
        saga.definition->steps.begin(), saga.definition->steps.end(), [&](const Step &s) {
            return s.compensable &&
                   (p.acted[s.no - 1] || (s.compensate_when_started && p.doubtful[s.no - 1]));
        });
}

/// `step` is nullptr when no step is to blame (a deadline).
void begin_compensation(Saga &saga, const Step *step, std::string_view error) {
    std::optional<int16> failed_step;
    if (step != nullptr)
        failed_step = step->no;
    Progress p = read_progress(saga);
    if (is_past_pivot(saga, p)) {
        change_status(saga, Direction::act,
                      {.to = Status::parked,
                       .failed_step = failed_step,
                       .error = error,
                       .parked_step = failed_step,
                       .parked_direction = Direction::act});
        return;
    }
    delete_unclaimed_acts.run(pg::param(saga.id), pg::param(saga.token));
    bool waits = work_remains(saga, Direction::act);
    if (!waits && !anything_to_undo(saga, p)) {
        change_status(saga, Direction::compensate,
                      {.to = Status::failed, .failed_step = failed_step, .error = error});
        return;
    }
    change_status(saga, Direction::compensate,
                  {.to = Status::compensating, .failed_step = failed_step, .error = error});
    if (!waits)
        compensate_next(saga);
}

void write_failure(const Saga &saga, const Step &step, const Work &work, const Failure &f) {
    insert_failure.run(pg::param(saga.id), pg::param(saga.token), pg::param(step.no),
                       param(work.direction), pg::param(work.attempt), param_lease(work.lease),
                       pg::param(core::name_of(f.failure_class)), pg::param(f.outcome_known),
                       pg::param_time(work.started_at.value_or(saga.now)), pg::param_time(f.since),
                       pg::param(work.worker), pg::param(f.sqlstate), pg::param(f.error));
    if (f.was_never_done)
        settle_outcomes.run(pg::param(saga.id), pg::param(saga.token), pg::param(step.no),
                            param(work.direction));
}

/// Leaves the work row for later. A lease that ran out is kept: its late answer still counts.
void pause(const Saga &saga, const Work &work, TimestampTz due_at, bool keep_lease,
           bool verifying) {
    pause_work.run(pg::param(saga.id), pg::param(saga.token), pg::param(work.step_no),
                   param(work.direction), pg::param_time(due_at), pg::param(work.attempt),
                   param_lease(keep_lease ? work.lease : std::nullopt), pg::param(verifying));
    wake_workers_at_commit();
}

void remove_work(const Saga &saga, const Work &work) {
    delete_work.run(pg::param(saga.id), pg::param(saga.token), pg::param(work.step_no),
                    param(work.direction));
}

/// A compensation has failed for good: the saga parks, at once or after undoing the rest.
void compensation_failed(Saga &saga, const Step &step, const Work &work, const Failure &f) {
    remove_work(saga, work);
    if (!saga.definition->continue_compensating)
        park_saga(saga, step, Direction::compensate, f.error);
    else if (!work_remains(saga, Direction::compensate))
        compensate_next(saga);
}

Saga read_saga(const pg::Rows &rows, uint64 row, TimestampTz now) {
    Saga s{};
    s.id = rows.uuid(row, 0);
    s.token = rows.int8(row, 1);
    s.ring_id = rows.int4(row, 2);
    s.definition = &load_definition(rows.int4(row, 3));
    s.status = *core::status_of(rows.text(row, 4));
    s.direction = *core::direction_of(rows.text(row, 5));
    s.input = rows.value(row, 6);
    s.headers = rows.value(row, 7);
    s.deadline_at = rows.optional_time(row, 8);
    s.slot = rows.int4(row, 9);
    if (!rows.is_null(row, 10))
        s.parked_step = rows.int2(row, 10);
    s.now = now;
    return s;
}

void advance(Saga &saga, const Step &step) {
    if (saga.status != Status::running || !stage_is_complete(saga, step))
        return;
    if (step.stage < saga.definition->stages)
        open_stage(saga, static_cast<int16>(step.stage + 1), saga.now);
    else
        change_status(saga, Direction::act, {.to = Status::completed});
}

/// The saga was parked for want of this very answer.
void unpark_answered(Saga &saga, const Step &step, const Work &work) {
    if (saga.status == Status::parked && saga.direction == Direction::act &&
        work.direction == Direction::act && saga.parked_step == step.no)
        change_status(saga, Direction::act, {.to = Status::running});
}

} // namespace

std::optional<Saga> lock_saga(const pg_uuid_t &id, TimestampTz now, bool skip_locked) {
    int64 token = core::token_of_uuid(id.data).value();
    pg::Rows rows =
        (skip_locked ? lock_one_or_skip : lock_one).run(pg::param(id), pg::param(token));
    if (rows.empty())
        return std::nullopt;
    return read_saga(rows, 0, now);
}

Saga require_saga(const pg_uuid_t &id, TimestampTz now) {
    std::optional<Saga> saga = lock_saga(id, now);
    if (!saga)
        raise_unknown_saga(id);
    return *saga;
}

std::optional<Work> find_work(const Saga &saga, int16 step_no, Direction direction) {
    pg::Rows rows = select_work.run(pg::param(saga.id), pg::param(saga.token), pg::param(step_no),
                                    param(direction));
    if (rows.empty())
        return std::nullopt;
    return Work{.step_no = rows.int2(0, 0),
                .direction = *core::direction_of(rows.text(0, 1)),
                .due_at = rows.time(0, 2),
                .attempt = rows.int4(0, 3),
                .lease = rows.optional_int8(0, 4),
                .lease_until = rows.optional_time(0, 5),
                .started_at = rows.optional_time(0, 6),
                .verifying = rows.boolean(0, 7),
                .worker = rows.optional_text(0, 8)};
}

Datum step_results(const Saga &saga, const Step &step, Direction direction) {
    if (direction == Direction::act && step.stage == 1 && is_alone(saga, step))
        return DirectFunctionCall1(jsonb_in, CStringGetDatum("{}")); // nothing can be there yet
    auto *names = static_cast<std::string_view *>(
        palloc(sizeof(std::string_view) * saga.definition->steps.size()));
    for (const Step &s : saga.definition->steps)
        names[s.no - 1] = s.name;
    pg::Rows rows = aggregate_results.run(
        pg::param(saga.id), pg::param(saga.token),
        pg::param_array(std::span<const std::string_view>{names, saga.definition->steps.size()}));
    return rows.value(0, 0);
}

void open_first_stage(const Saga &saga, TimestampTz due_at) {
    open_stage(saga, 1, due_at);
    if (saga.deadline_at)
        insert_work.run(pg::param(saga.id), pg::param(saga.token), pg::param(saga.ring_id),
                        pg::param(saga.slot), pg::param(deadline_step_no), param(Direction::act),
                        pg::param_time(*saga.deadline_at), pg::param_null(TEXTOID));
}

void attempt_begins(Saga &saga) {
    if (saga.status == Status::pending)
        change_status(saga, Direction::act, {.to = Status::running});
}

void step_completed(Saga &saga, const Step &step, const Work &work, const pg::Param &output) {
    unpark_answered(saga, step, work);
    insert_effect.run(pg::param(saga.id), pg::param(saga.token), pg::param(step.no),
                      param(work.direction), pg::param(work.attempt), param_lease(work.lease),
                      pg::param_time(work.started_at.value_or(saga.now)), pg::param_time(saga.now),
                      pg::param(work.worker), output);
    remove_work(saga, work);
    if (work.direction == Direction::compensate) {
        if (saga.status == Status::compensating && !work_remains(saga, Direction::compensate))
            compensate_next(saga);
    } else if (saga.direction == Direction::compensate) {
        settled_on_the_way_back(saga, step, true);
    } else {
        advance(saga, step);
    }
}

void step_failed(Saga &saga, const Step &step, const Work &work, const Failure &failure) {
    unpark_answered(saga, step, work);
    write_failure(saga, step, work, failure);
    if (work.direction == Direction::act && saga.direction == Direction::compensate) {
        if (step.verify && !failure.outcome_known && !failure.was_verified) {
            pause(saga, work, saga.now, failure.keep_lease, true);
            return;
        }
        remove_work(saga, work);
        settled_on_the_way_back(saga, step, !failure.outcome_known);
        return;
    }
    const core::RetryPolicy &policy = saga.definition->rules(step, work.direction).policy;
    core::Verdict verdict = core::decide(
        {.direction = work.direction,
         .failure_class = failure.failure_class,
         .attempts_left = policy.max_attempts == 0 || work.attempt < policy.max_attempts,
         .has_verify = step.verify && !failure.was_verified && !failure.outcome_known,
         .irreversible = step.irreversible && !failure.outcome_known});
    switch (verdict) {
    case core::Verdict::retry: {
        int64 delay = failure.retry_after_us.value_or(
            core::delay_before(work.attempt + 1, policy, pg::random_fraction()));
        pause(saga, work, pg::time_plus(failure.since, delay), failure.keep_lease, false);
        break;
    }
    case core::Verdict::verify:
        pause(saga, work, saga.now, failure.keep_lease, true);
        break;
    case core::Verdict::give_up:
        remove_work(saga, work);
        if (saga.status != Status::parked) // whose unknown step must be settled first
            begin_compensation(saga, &step, failure.error);
        break;
    case core::Verdict::park:
        if (work.direction == Direction::compensate) {
            compensation_failed(saga, step, work, failure);
        } else {
            // Nobody looks at it again, but its late answer still counts.
            if (failure.keep_lease)
                pause(saga, work, DT_NOEND, true, false);
            else
                remove_work(saga, work);
            park_saga(saga, step, work.direction, failure.error);
        }
        break;
    }
}

void lease_expired(Saga &saga, const Step &step, const Work &work) {
    bool timed_out = *work.lease_until > work.due_at; // due_at is the earlier of lease and timeout
    bool unknown = timed_out || (step.irreversible && work.direction == Direction::act);
    step_failed(saga, step, work,
                {.failure_class = unknown ? FailureClass::unknown : FailureClass::retryable,
                 .outcome_known = false,
                 .error = timed_out ? "the attempt took longer than the step's timeout"
                                    : "the lease ran out",
                 .since = work.due_at,
                 .keep_lease = true});
}

TimestampTz attempt_deadline(const Saga &saga, const Step &step, Direction direction) {
    TimestampTz timeout = pg::time_plus(saga.now, step.timeout_us);
    bool binds = direction == Direction::act && saga.deadline_at && *saga.deadline_at > saga.now;
    return binds ? std::min(timeout, *saga.deadline_at) : timeout;
}

bool deadline_passed(Saga &saga) {
    if (!saga.deadline_at || *saga.deadline_at > saga.now || saga.direction != Direction::act ||
        core::is_at_rest(saga.status) || is_past_pivot(saga, read_progress(saga)))
        return false;
    begin_compensation(saga, nullptr, "the deadline of the saga passed");
    return true;
}

void deadline_due(Saga &saga) {
    Work deadline{};
    deadline.step_no = deadline_step_no;
    deadline.direction = Direction::act;
    remove_work(saga, deadline);
    deadline_passed(saga);
}

void step_is_unusable(Saga &saga, const Step &step, const Work &work, const Failure &failure) {
    write_failure(saga, step, work, failure);
    remove_work(saga, work);
    park_saga(saga, step, work.direction, failure.error);
}

} // namespace stacksaga
