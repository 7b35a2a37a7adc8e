#include "core/token.hpp"

#include "src/saga/saga.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "src/common/counters.hpp"
#include "src/common/limits.hpp"
#include "src/common/queue_waiters.hpp"
#include "src/common/wake.hpp"
#include "src/handler/running_handler.hpp"
#include "src/saga/child.hpp"

namespace stacksaga {

namespace {

using core::Direction;
using core::Status;
using core::WorkPurpose;

#define THIS_SAGA " saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token "
#define THIS_STEP THIS_SAGA "AND purpose = 'step' AND step_no = $3 AND direction = $4"
#define THIS_SAGA_WORK THIS_SAGA "AND purpose = $3::stacksaga.work_purpose AND step_no = $4"
#define SELECT_SAGA                                                                                \
    "SELECT saga_id, token::bigint, ring_id, definition_id, status, direction, input, headers,"    \
    "       deadline_at, slot, parked_step, parked_direction, parent_id, parent_step,"             \
    "       created_at"                                                                            \
    "  FROM stacksaga.saga WHERE" THIS_SAGA "FOR NO KEY UPDATE"

constinit pg::Statement lock_one{SELECT_SAGA};
constinit pg::Statement lock_one_or_skip{SELECT_SAGA " SKIP LOCKED"};

constinit pg::Statement select_work{
    "SELECT step_no, direction, due_at, attempt, lease, lease_until, started_at, verifying, worker,"
    "       attempt_base, falling_back"
    "  FROM stacksaga.work WHERE" THIS_STEP};
constinit pg::Statement insert_work{
    "INSERT INTO stacksaga.work (saga_id, token, ring_id, slot, purpose, step_no, direction,"
    "       due_at, queue, attempt, attempt_base, falling_back, started_at, resume_at)"
    " VALUES ($1, $2::stacksaga.ring_token, $3, $4, 'step', $5, $6, $7, $8, $9, $9, $10, $11,"
    "         $12)"};
constinit pg::Statement insert_deadline{
    "INSERT INTO stacksaga.work (saga_id, token, ring_id, slot, purpose, step_no, direction,"
    "       due_at)"
    " VALUES ($1, $2::stacksaga.ring_token, $3, $4, 'deadline', $5, 'act', $6)"};
constinit pg::Statement lock_saga_row{"SELECT 1 FROM stacksaga.work WHERE" THIS_SAGA_WORK
                                      "   AND due_at <= $5 FOR UPDATE SKIP LOCKED"};
constinit pg::Statement delete_work{"DELETE FROM stacksaga.work WHERE" THIS_STEP};
constinit pg::Statement delete_saga_work{"DELETE FROM stacksaga.work WHERE" THIS_SAGA_WORK};
// The deadline too: a saga that compensates has none.
constinit pg::Statement delete_unclaimed_acts{
    "DELETE FROM stacksaga.work WHERE" THIS_SAGA
    "   AND purpose IN ('step', 'deadline') AND direction = 'act'"
    "   AND lease_until IS NULL AND NOT verifying"};
constinit pg::Statement find_remaining{"SELECT 1 FROM stacksaga.work WHERE" THIS_SAGA
                                       "AND purpose = 'step' AND direction = $3 LIMIT 1"};
constinit pg::Statement select_steps_with_work{"SELECT step_no FROM stacksaga.work WHERE" THIS_SAGA
                                               "AND purpose = 'step' AND direction = $3"};
constinit pg::Statement select_steps_in_flight{
    "SELECT step_no FROM stacksaga.work WHERE" THIS_SAGA
    "   AND purpose = 'step' AND direction = 'act' AND (lease_until IS NOT NULL OR verifying)"};
constinit pg::Statement select_steps_kept{
    "SELECT step_no FROM stacksaga.work WHERE" THIS_SAGA
    "   AND purpose = 'step' AND direction = 'act' AND due_at = 'infinity'"
    "   AND lease_until IS NULL AND resume_at IS NULL"};
// What a final saga has no use for; a compensation request stays.
constinit pg::Statement delete_leftovers{"DELETE FROM stacksaga.work WHERE" THIS_SAGA
                                         "   AND purpose IN ('deadline', 'child_settled')"};
constinit pg::Statement pause_one{
    "UPDATE stacksaga.work"
    "   SET due_at = $5, attempt = $6, lease = $7, lease_until = NULL, verifying = $8,"
    "       resume_at = $9, deferred = false"
    " WHERE" THIS_STEP};
constinit pg::Statement wait_for_one{
    "UPDATE stacksaga.work"
    "   SET attempt = $5, started_at = $6, due_at = $7, lease_until = $7, worker = $8, lease = $9"
    " WHERE" THIS_STEP};
constinit pg::Statement count_anew{
    "UPDATE stacksaga.work SET attempt_base = attempt, due_at = $5, lease_until = NULL"
    " WHERE" THIS_STEP};
constinit pg::Statement hold{"UPDATE stacksaga.work SET resume_at = due_at, due_at = 'infinity'"
                             " WHERE" THIS_SAGA "AND purpose IN ('step', 'deadline')"};
constinit pg::Statement release{"UPDATE stacksaga.work SET due_at = resume_at, resume_at = NULL"
                                " WHERE" THIS_SAGA "AND resume_at IS NOT NULL RETURNING queue"};

constinit pg::Statement insert_effect{
    "INSERT INTO stacksaga.effect (saga_id, token, step_no, direction, attempt, lease, started_at,"
    "       completed_at, worker, output)"
    " VALUES ($1, $2::stacksaga.ring_token, $3, $4, $5, $6, $7, $8, $9, $10)"};
constinit pg::Statement select_effects{
    "SELECT step_no, direction FROM stacksaga.effect WHERE" THIS_SAGA};
// A late answer to an attempt that was already counted as failed replaces its row.
constinit pg::Statement insert_failure{
    "INSERT INTO stacksaga.failure AS f (saga_id, token, step_no, direction, attempt, lease,"
    "       error_class, outcome_known, started_at, finished_at, worker, sqlstate, error)"
    " VALUES ($1, $2::stacksaga.ring_token, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
    " ON CONFLICT (saga_id, step_no, direction, attempt, token) DO UPDATE"
    "   SET error_class = excluded.error_class, outcome_known = excluded.outcome_known,"
    "       finished_at = excluded.finished_at, sqlstate = excluded.sqlstate,"
    "       error = CASE WHEN $14 THEN f.error || '; ' ELSE '' END || excluded.error"};
constinit pg::Statement select_doubtful{
    "SELECT DISTINCT step_no FROM stacksaga.failure WHERE" THIS_SAGA
    "   AND direction = 'act' AND NOT outcome_known"};
constinit pg::Statement find_unknown_attempt{
    "SELECT 1 FROM stacksaga.failure WHERE" THIS_SAGA
    "   AND step_no = $3 AND direction = 'act' AND error_class = 'unknown' AND NOT outcome_known"
    " LIMIT 1"};
constinit pg::Statement settle{"UPDATE stacksaga.failure SET outcome_known = true WHERE" THIS_SAGA
                               "   AND step_no = $3 AND direction = $4 AND NOT outcome_known"};
constinit pg::Statement select_last_failed{
    "SELECT step_no, max(attempt) FROM stacksaga.failure WHERE" THIS_SAGA
    "   AND direction = $3 GROUP BY step_no"};

constinit pg::Statement update_status{
    "UPDATE stacksaga.saga"
    "   SET status = $3, direction = $4, updated_at = $5, finished_at = $6,"
    "       failed_step = CASE WHEN $3 <> 'running' THEN coalesce(failed_step, $7) END,"
    "       error = CASE WHEN $3 <> 'running' THEN coalesce(error, $8) END,"
    "       parked_step = $9, parked_direction = $10"
    " WHERE" THIS_SAGA};

constinit pg::Statement take_oldest_signal{
    "UPDATE stacksaga.saga_signal SET step_no = $4"
    " WHERE" THIS_SAGA "AND signal_no = ("
    "       SELECT min(s.signal_no) FROM stacksaga.saga_signal s"
    "        WHERE s.saga_id = $1 AND s.token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "          AND s.signal = $3 AND s.step_no IS NULL)"
    " RETURNING payload"};

pg::Param param(Direction d) {
    return pg::param(core::name_of(d));
}
pg::Param param_lease(std::optional<int64> lease) {
    return lease ? pg::param(*lease) : pg::param_null(INT8OID);
}
pg::Param param_step(std::optional<int16> no) {
    return no ? pg::param(*no) : pg::param_null(INT2OID);
}

/// While a saga is suspended nothing of it is due.
struct DueTimes {
    TimestampTz due_at;
    std::optional<TimestampTz> resume_at;
};
DueTimes due_times(const Saga &saga, TimestampTz due_at) {
    if (saga.is_suspended())
        return {DT_NOEND, due_at};
    return {due_at, std::nullopt};
}

std::optional<std::string_view> queue_of(const Saga &saga, const Work &work) {
    return queue_of(saga.definition->step(work.step_no), work.falling_back);
}

/// Wakes who can do what falls due: the services that wait for this queue, or without one the
/// workers.
void wake_for(const Saga &saga, std::optional<std::string_view> queue, TimestampTz due_at) {
    if (queue)
        wake_waiters_at_commit(saga.ring_id, *queue);
    else
        wake_workers_at_commit(due_at);
}

bool *flags(const Definition &d) {
    return static_cast<bool *>(palloc0(sizeof(bool) * d.steps.size()));
}

Saga read_saga(const pg::Rows &rows, TimestampTz now) {
    Saga s{};
    s.id = rows.uuid(0, 0);
    s.token = rows.int8(0, 1);
    s.ring_id = rows.int4(0, 2);
    s.definition = &load_definition(rows.int4(0, 3));
    s.status = *core::status_of(rows.text(0, 4));
    s.direction = *core::direction_of(rows.text(0, 5));
    s.input = rows.value(0, 6);
    s.headers = rows.value(0, 7);
    s.deadline_at = rows.optional_time(0, 8);
    s.slot = rows.int4(0, 9);
    if (!rows.is_null(0, 10))
        s.parked_step = rows.int2(0, 10);
    if (!rows.is_null(0, 11))
        s.parked_direction = core::direction_of(rows.text(0, 11));
    if (!rows.is_null(0, 12)) {
        s.parent_id = rows.uuid(0, 12);
        s.parent_step = rows.int2(0, 13);
    }
    s.created_at = rows.time(0, 14);
    s.now = now;
    return s;
}

} // namespace

std::optional<std::string_view> queue_of(const Step &step, bool falling_back) {
    if (falling_back && step.traits().fallback == core::FallbackKind::queue)
        return step.fallback_queue;
    if (step.traits().waits_for == core::StepWait::claim)
        return step.queue;
    return std::nullopt;
}

namespace {

std::optional<Saga> lock_and_read(const pg_uuid_t &id, TimestampTz now, bool skip_locked) {
    int64 token = core::token_of_uuid(id.data).value();
    pg::Rows rows =
        (skip_locked ? lock_one_or_skip : lock_one).run(pg::param(id), pg::param(token));
    if (rows.empty())
        return std::nullopt;
    return read_saga(rows, now);
}

Saga require(const pg_uuid_t &id, const std::optional<Saga> &saga) {
    if (!saga)
        raise_unknown_saga(id);
    return *saga;
}

} // namespace

std::optional<Saga> lock_saga(const pg_uuid_t &id, TimestampTz now, bool skip_locked) {
    if (running_handler.is_of_step_of(id))
        ereport(ERROR,
                (errcode(pg::sg409),
                 errmsg("a handler cannot act on saga %s, whose step it runs", uuid_text(id)),
                 errdetail("The step that called the function is not settled yet."),
                 errhint("Return, or raise SG424 to fail the step. A handler may signal its saga, "
                         "publish, and act on other sagas.")));
    return lock_and_read(id, now, skip_locked);
}

Saga require_saga(const pg_uuid_t &id, TimestampTz now) {
    return require(id, lock_saga(id, now));
}

Saga require_saga_to_signal(const pg_uuid_t &id, TimestampTz now) {
    running_handler.note_signal(id);
    return require(id, lock_and_read(id, now, false));
}

void raise_unknown_step(const Saga &saga, std::string_view name) {
    ereport(ERROR, (errcode(pg::sg404),
                    errmsg("saga %s has no step \"%s\"", uuid_text(saga.id), clip(name)),
                    errdetail("It runs version %d of \"%s\".", saga.definition->version,
                              clip(saga.definition->saga)),
                    errhint("Name the step as the definition does; claim_steps() returns it.")));
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
                .attempt_base = rows.int4(0, 9),
                .lease = rows.optional_int8(0, 4),
                .lease_until = rows.optional_time(0, 5),
                .started_at = rows.optional_time(0, 6),
                .verifying = rows.boolean(0, 7),
                .falling_back = rows.boolean(0, 10),
                .worker = rows.optional_text(0, 8)};
}

bool work_remains(const Saga &saga, Direction direction) {
    return !find_remaining.run(pg::param(saga.id), pg::param(saga.token), param(direction)).empty();
}

void add_work(const Saga &saga, const Step &step, const NewWork &work) {
    CRASH_POINT("step: before the next work row");
    DueTimes due = due_times(saga, work.due_at);
    insert_work.run(pg::param(saga.id), pg::param(saga.token), pg::param(saga.ring_id),
                    pg::param(saga.slot), pg::param(step.no), param(work.direction),
                    pg::param_time(due.due_at), pg::param(queue_of(step, work.falling_back)),
                    pg::param(work.attempt), pg::param(work.falling_back),
                    pg::param_time(work.started_at), pg::param_time(due.resume_at));
    CRASH_POINT("step: next work row written, workers not woken");
    wake_for(saga, queue_of(step, work.falling_back), due.due_at);
}

void remove_work(const Saga &saga, int16 step_no, Direction direction) {
    delete_work.run(pg::param(saga.id), pg::param(saga.token), pg::param(step_no),
                    param(direction));
    CRASH_POINT("step: work row removed");
}

void add_deadline(const Saga &saga) {
    insert_deadline.run(pg::param(saga.id), pg::param(saga.token), pg::param(saga.ring_id),
                        pg::param(saga.slot), pg::param(no_step), pg::param_time(saga.deadline_at));
    wake_workers_at_commit(*saga.deadline_at);
}

bool lock_saga_work(const Saga &saga, WorkPurpose purpose, int16 step_no) {
    return !lock_saga_row
                .run(pg::param(saga.id), pg::param(saga.token), pg::param(core::name_of(purpose)),
                     pg::param(step_no), pg::param_time(saga.now))
                .empty();
}

void remove_saga_work(const Saga &saga, WorkPurpose purpose, int16 step_no) {
    delete_saga_work.run(pg::param(saga.id), pg::param(saga.token),
                         pg::param(core::name_of(purpose)), pg::param(step_no));
}

void remove_unclaimed_acts(const Saga &saga) {
    delete_unclaimed_acts.run(pg::param(saga.id), pg::param(saga.token));
}

void pause_work(const Saga &saga, const Work &work, TimestampTz due_at, bool keep_lease,
                bool verifying) {
    DueTimes due = due_times(saga, due_at);
    pause_one.run(pg::param(saga.id), pg::param(saga.token), pg::param(work.step_no),
                  param(work.direction), pg::param_time(due.due_at), pg::param(work.attempt),
                  param_lease(keep_lease ? work.lease : std::nullopt), pg::param(verifying),
                  pg::param_time(due.resume_at));
    CRASH_POINT("step: retry written");
    wake_for(saga, verifying ? std::nullopt : queue_of(saga, work), due.due_at);
}

void begin_wait(const Saga &saga, const Work &work, TimestampTz until, std::string_view worker) {
    wait_for_one.run(pg::param(saga.id), pg::param(saga.token), pg::param(work.step_no),
                     param(work.direction), pg::param(work.attempt), pg::param_time(saga.now),
                     pg::param_time(until), pg::param(worker), param_lease(work.lease));
    CRASH_POINT("step: waits for another");
}

void start_counting_anew(const Saga &saga, const Work &work) {
    count_anew.run(pg::param(saga.id), pg::param(saga.token), pg::param(work.step_no),
                   param(work.direction), pg::param_time(saga.now));
    wake_for(saga, work.verifying ? std::nullopt : queue_of(saga, work), saga.now);
}

void hold_work(const Saga &saga) {
    hold.run(pg::param(saga.id), pg::param(saga.token));
}

void release_work(const Saga &saga) {
    pg::Rows rows = release.run(pg::param(saga.id), pg::param(saga.token));
    wake_workers_at_commit();
    for (uint64 i = 0; i < rows.count(); ++i)
        if (const auto queue = rows.optional_text(i, 0))
            wake_waiters_at_commit(saga.ring_id, *queue);
}

void change_status(Saga &saga, Direction direction, const StatusChange &change) {
    std::optional<TimestampTz> finished_at;
    if (core::is_final(change.to))
        finished_at = saga.now;
    std::optional<std::string_view> parked_direction;
    if (change.parked_direction)
        parked_direction = core::name_of(*change.parked_direction);
    CRASH_POINT("saga: before the status");
    update_status.run(pg::param(saga.id), pg::param(saga.token),
                      pg::param(core::name_of(change.to)), param(direction),
                      pg::param_time(saga.now), pg::param_time(finished_at),
                      param_step(change.failed_step), pg::param(change.error),
                      param_step(change.parked_step), pg::param(parked_direction));
    CRASH_POINT("saga: status written");
    saga.status = change.to;
    saga.direction = direction;
    saga.parked_step = change.parked_step;
    saga.parked_direction = change.parked_direction;
    if (!core::is_final(change.to))
        return;
    if (saga.deadline_at || saga.definition->has_children)
        delete_leftovers.run(pg::param(saga.id), pg::param(saga.token));
    if (saga.parent_id)
        notify_parent(saga);
}

Progress read_progress(const Saga &saga) {
    Progress p{flags(*saga.definition), flags(*saga.definition), flags(*saga.definition)};
    pg::Rows effects = select_effects.run(pg::param(saga.id), pg::param(saga.token));
    for (uint64 i = 0; i < effects.count(); ++i)
        (effects.text(i, 1) == "act" ? p.acted : p.compensated)[effects.int2(i, 0) - 1] = true;
    pg::Rows doubtful = select_doubtful.run(pg::param(saga.id), pg::param(saga.token));
    for (uint64 i = 0; i < doubtful.count(); ++i)
        p.doubtful[doubtful.int2(i, 0) - 1] = true;
    return p;
}

int32 *last_failed_attempts(const Saga &saga, Direction direction) {
    auto *attempts = static_cast<int32 *>(palloc0(sizeof(int32) * saga.definition->steps.size()));
    pg::Rows rows =
        select_last_failed.run(pg::param(saga.id), pg::param(saga.token), param(direction));
    for (uint64 i = 0; i < rows.count(); ++i)
        attempts[rows.int2(i, 0) - 1] = rows.int4(i, 1);
    return attempts;
}

namespace {

bool *flags_of_steps(const Saga &saga, const pg::Rows &rows) {
    auto *flags = static_cast<bool *>(palloc0(sizeof(bool) * saga.definition->steps.size()));
    for (uint64 i = 0; i < rows.count(); ++i)
        flags[rows.int2(i, 0) - 1] = true;
    return flags;
}

} // namespace

bool *steps_with_work(const Saga &saga, Direction direction) {
    return flags_of_steps(saga, select_steps_with_work.run(
                                    pg::param(saga.id), pg::param(saga.token), param(direction)));
}

bool *steps_in_flight(const Saga &saga) {
    return flags_of_steps(saga,
                          select_steps_in_flight.run(pg::param(saga.id), pg::param(saga.token)));
}

bool *steps_kept(const Saga &saga) {
    return flags_of_steps(saga, select_steps_kept.run(pg::param(saga.id), pg::param(saga.token)));
}

void write_effect(const Saga &saga, const Step &step, const Work &work, const pg::Param &output) {
    CRASH_POINT("step: before the marker");
    count_completed(work.direction);
    insert_effect.run(pg::param(saga.id), pg::param(saga.token), pg::param(step.no),
                      param(work.direction), pg::param(work.attempt), param_lease(work.lease),
                      pg::param_time(work.started_at.value_or(saga.now)), pg::param_time(saga.now),
                      pg::param(work.worker), output);
    CRASH_POINT("step: marker written, work row still there");
}

void write_failure(const Saga &saga, const Step &step, const Work &work, const Failure &f) {
    count_failed(work.direction, f.failure_class);
    insert_failure.run(pg::param(saga.id), pg::param(saga.token), pg::param(step.no),
                       param(work.direction), pg::param(work.attempt), param_lease(work.lease),
                       pg::param(core::name_of(f.failure_class)), pg::param(f.outcome_known),
                       pg::param_time(work.started_at.value_or(saga.now)), pg::param_time(f.since),
                       pg::param(work.worker), pg::param(f.sqlstate), pg::param(f.error),
                       pg::param(f.adds_to_error));
    CRASH_POINT("step: failure written, work row unchanged");
    if (f.was_never_done)
        settle_outcomes(saga, step.no, work.direction);
}

bool has_unknown_attempt(const Saga &saga, int16 step_no) {
    return !find_unknown_attempt.run(pg::param(saga.id), pg::param(saga.token), pg::param(step_no))
                .empty();
}

void settle_outcomes(const Saga &saga, int16 step_no, Direction direction) {
    settle.run(pg::param(saga.id), pg::param(saga.token), pg::param(step_no), param(direction));
}

std::optional<Datum> take_signal(const Saga &saga, const Step &step) {
    pg::Rows rows = take_oldest_signal.run(pg::param(saga.id), pg::param(saga.token),
                                           pg::param(step.signal), pg::param(step.no));
    if (rows.empty())
        return std::nullopt;
    CRASH_POINT("signal: taken, step not completed");
    return rows.value(0, 0);
}

} // namespace stacksaga
