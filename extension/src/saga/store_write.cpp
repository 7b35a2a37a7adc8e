// What the engine decided, as rows: markers first, what other sagas hear of it last.
#include "src/saga/store.hpp"

#include "pg/crash_point.hpp"
#include "pg/query.hpp"
#include "src/common/counters.hpp"
#include "src/common/queue_waiters.hpp"
#include "src/common/wake.hpp"
#include "src/saga/child.hpp"

namespace stacksaga {

namespace {

using core::Direction;
using core::RowState;

#define THIS_SAGA " saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token "
#define THIS_WORK                                                                                  \
    THIS_SAGA "AND purpose = $3::stacksaga.work_purpose AND step_no = $4 AND direction = $5"

constinit pg::Statement insert_effect{
    "INSERT INTO stacksaga.effect (saga_id, token, step_no, direction, attempt, lease, started_at,"
    "       completed_at, worker, output)"
    " VALUES ($1, $2::stacksaga.ring_token, $3, $4, $5, $6, $7, $8, $9, $10)"};
// A late answer to an attempt that was already counted as failed replaces its row.
constinit pg::Statement insert_failure{
    "INSERT INTO stacksaga.failure AS f (saga_id, token, step_no, direction, attempt, lease,"
    "       error_class, outcome_known, started_at, finished_at, worker, sqlstate, error)"
    " VALUES ($1, $2::stacksaga.ring_token, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
    " ON CONFLICT (saga_id, step_no, direction, attempt, token) DO UPDATE"
    "   SET error_class = excluded.error_class, outcome_known = excluded.outcome_known,"
    "       finished_at = excluded.finished_at, sqlstate = excluded.sqlstate,"
    "       error = CASE WHEN $14 THEN f.error || '; ' ELSE '' END || excluded.error"};
constinit pg::Statement settle{"UPDATE stacksaga.failure SET outcome_known = true WHERE" THIS_SAGA
                               "   AND step_no = $3 AND direction = $4 AND NOT outcome_known"};
constinit pg::Statement delete_work{"DELETE FROM stacksaga.work WHERE" THIS_WORK};
constinit pg::Statement update_work{
    "UPDATE stacksaga.work"
    "   SET due_at = $6, queue = $7, attempt = $8, attempt_base = $9, lease = $10,"
    "       lease_until = $11, started_at = $12, resume_at = $13, verifying = $14,"
    "       falling_back = $15, deferred = $16, worker = $17"
    " WHERE" THIS_WORK};
constinit pg::Statement insert_work{
    "INSERT INTO stacksaga.work (saga_id, token, purpose, step_no, direction, due_at, queue,"
    "       attempt, attempt_base, lease, lease_until, started_at, resume_at, verifying,"
    "       falling_back, deferred, worker, ring_id, slot)"
    " VALUES ($1, $2::stacksaga.ring_token, $3::stacksaga.work_purpose, $4, $5, $6, $7, $8, $9,"
    "         $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)"};
constinit pg::Statement take_signal{"UPDATE stacksaga.saga_signal SET step_no = $4 WHERE" THIS_SAGA
                                    "AND signal_no = $3"};
constinit pg::Statement update_saga{
    "UPDATE stacksaga.saga"
    "   SET status = $3, direction = $4, updated_at = $5, finished_at = $6, failed_step = $7,"
    "       error = $8, parked_step = $9, parked_direction = $10"
    " WHERE" THIS_SAGA};
// What a final saga has no use for; a compensation request stays.
constinit pg::Statement delete_notices{"DELETE FROM stacksaga.work WHERE" THIS_SAGA
                                       "   AND purpose = 'child_settled'"};

pg::Param param(Direction d) {
    return pg::param(core::name_of(d));
}
pg::Param param(std::optional<int64> value) {
    return value ? pg::param(*value) : pg::param_null(INT8OID);
}
pg::Param param(std::optional<int16> value) {
    return value ? pg::param(*value) : pg::param_null(INT2OID);
}
pg::Param param(core::Value json) {
    return pg::param_datum(JSONBOID, json.bits, json.is_null);
}

void write_effects(const Saga &saga) {
    for (const core::Effect &e : saga.changes.effects) {
        CRASH_POINT("step: before the marker");
        count_completed(e.direction);
        insert_effect.run(pg::param(saga.id), pg::param(saga.token), pg::param(e.step_no),
                          param(e.direction), pg::param(e.attempt), param(e.lease),
                          pg::param_time(e.started_at), pg::param_time(saga.now),
                          pg::param(e.worker), param(e.output));
        CRASH_POINT("step: marker written, work row still there");
    }
}

void write_failures(const Saga &saga) {
    for (const core::Settled &s : saga.changes.settled)
        settle.run(pg::param(saga.id), pg::param(saga.token), pg::param(s.step_no),
                   param(s.direction));
    for (const core::NewFailure &n : saga.changes.failures) {
        const core::Failure &f = n.failure;
        count_failed(n.direction, f.failure_class);
        insert_failure.run(pg::param(saga.id), pg::param(saga.token), pg::param(n.step_no),
                           param(n.direction), pg::param(n.attempt), param(n.lease),
                           pg::param(core::name_of(f.failure_class)), pg::param(f.outcome_known),
                           pg::param_time(n.started_at), pg::param_time(f.since),
                           pg::param(n.worker), pg::param(f.sqlstate), pg::param(f.error),
                           pg::param(f.adds_to_error));
        CRASH_POINT("step: failure written, work row unchanged");
    }
    if (saga.changes.retries > 0)
        count_event(Counter::retries, saga.changes.retries);
}

/// The queue of a step's row; nothing: a worker runs it.
std::optional<std::string_view> queue_of(const Saga &saga, const Work &work) {
    if (work.purpose != core::WorkPurpose::step)
        return std::nullopt;
    return saga.definition->step(work.step_no).queue_of(work.falling_back);
}

/// Wakes who can do what falls due: the services that wait for this queue, or the workers.
void wake_for(const Saga &saga, const Work &work, std::optional<std::string_view> queue) {
    if (queue && !work.verifying)
        wake_waiters_at_commit(saga.ring_id, *queue);
    else
        wake_workers_at_commit(work.due_at);
}

void write_row(const Saga &saga, const core::WorkRow &row) {
    const Work &w = row.work;
    const std::optional<std::string_view> queue = queue_of(saga, w);
    const auto write = [&](pg::Statement &statement, auto... more) {
        statement.run(pg::param(saga.id), pg::param(saga.token),
                      pg::param(core::name_of(w.purpose)), pg::param(w.step_no), param(w.direction),
                      pg::param_time(w.due_at), pg::param(queue), pg::param(w.attempt),
                      pg::param(w.attempt_base), param(w.lease), pg::param_time(w.lease_until),
                      pg::param_time(w.started_at), pg::param_time(w.resume_at),
                      pg::param(w.verifying), pg::param(w.falling_back), pg::param(w.deferred),
                      pg::param(w.worker), more...);
    };
    if (row.state == RowState::added)
        write(insert_work, pg::param(saga.ring_id), pg::param(saga.slot));
    else
        write(update_work);
    CRASH_POINT("step: work row written, nobody woken");
    if (row.wakes)
        wake_for(saga, w, queue);
}

void write_work(Saga &saga) {
    for (const core::WorkRow &row : saga.work)
        if (row.state == RowState::removed) {
            delete_work.run(pg::param(saga.id), pg::param(saga.token),
                            pg::param(core::name_of(row.work.purpose)), pg::param(row.work.step_no),
                            param(row.work.direction));
            CRASH_POINT("step: work row removed");
        }
    for (const core::WorkRow &row : saga.work)
        if (row.state == RowState::added || row.state == RowState::changed)
            write_row(saga, row);
}

void write_status(const Saga &saga, const core::SagaRow &row) {
    std::optional<TimestampTz> finished_at;
    if (core::is_final(row.status))
        finished_at = saga.now;
    std::optional<std::string_view> parked_direction;
    if (row.parked_direction)
        parked_direction = core::name_of(*row.parked_direction);
    CRASH_POINT("saga: before the status");
    update_saga.run(pg::param(saga.id), pg::param(saga.token), pg::param(core::name_of(row.status)),
                    param(row.direction), pg::param_time(saga.now), pg::param_time(finished_at),
                    param(row.failed_step), pg::param(row.error), param(row.parked_step),
                    pg::param(parked_direction));
    CRASH_POINT("saga: status written");
}

void forget_changes(Saga &saga) {
    core::List<core::WorkRow> live{};
    for (core::WorkRow row : saga.work)
        if (row.is_live()) {
            row.state = RowState::stored;
            row.wakes = false;
            live.push(saga.memory, row);
        }
    saga.work = live;
    saga.stored = saga.row;
    saga.changes = {};
}

} // namespace

void write_markers(Saga &saga) {
    write_effects(saga);
    write_failures(saga);
    saga.changes.effects.clear();
    saga.changes.failures.clear();
    saga.changes.settled.clear();
    saga.changes.retries = 0;
}

void write_saga(Saga &saga) {
    write_markers(saga);
    write_work(saga);
    for (const core::TakenSignal &t : saga.changes.taken) {
        take_signal.run(pg::param(saga.id), pg::param(saga.token), pg::param(t.no),
                        pg::param(t.step_no));
        CRASH_POINT("signal: taken, status not written");
    }
    for (const core::SagaRow &row : saga.changes.rows)
        write_status(saga, row);
    if (saga.changes.removes_notices)
        delete_notices.run(pg::param(saga.id), pg::param(saga.token));
    for (const core::ChildRequest &request : saga.changes.children)
        send_request(saga, request);
    if (saga.changes.notifies_parent)
        notify_parent(saga);
    forget_changes(saga);
}

} // namespace stacksaga
