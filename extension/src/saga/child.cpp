#include "core/retry.hpp"
#include "core/token.hpp"

#include "src/saga/child.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/function.hpp"
#include "src/common/limits.hpp"
#include "src/common/wake.hpp"
#include "src/ring/fingerprint.hpp"
#include "src/ring/ring.hpp"
#include "src/saga/start.hpp"

namespace stacksaga {

namespace {

using core::Direction;
using core::FailureClass;
using core::Status;
using core::WorkPurpose;

// Status and compensation request in one statement: a child that begins to compensate removes the
// request and changes its status in one transaction. Two statements could see the request removed
// and the status unchanged, which is how a refused request looks.
constinit pg::Statement find_latest_child{
    "SELECT c.saga_id, c.status, c.run, c.error,"
    "       EXISTS (SELECT FROM stacksaga.work w"
    "                WHERE w.saga_id = c.saga_id AND w.token OPERATOR(stacksaga.=) c.token"
    "                  AND w.purpose = 'compensation_request')"
    "  FROM stacksaga.saga c"
    " WHERE c.parent_id = $1 AND c.parent_step = $2 ORDER BY c.run DESC LIMIT 1"};
// Adds a row to another saga's work, in that saga's ring and slot. A row that is there is written
// again, so that its reader waits for this commit and sees what the row announces.
constinit pg::Statement add_notice{
    "INSERT INTO stacksaga.work (saga_id, token, ring_id, slot, purpose, step_no, direction,"
    "       due_at)"
    " SELECT saga_id, token, ring_id, slot, $3::stacksaga.work_purpose, $4, 'act', $5"
    "   FROM stacksaga.saga"
    "  WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    " ON CONFLICT (saga_id, purpose, step_no, direction, token)"
    " DO UPDATE SET due_at = excluded.due_at"};
constinit pg::Statement select_output{
    "SELECT coalesce(jsonb_object_agg(d.step, e.output), '{}')"
    "  FROM stacksaga.saga s"
    "  JOIN stacksaga.effect e"
    "    ON e.saga_id = s.saga_id AND e.token OPERATOR(stacksaga.=) s.token AND e.direction = 'act'"
    "  JOIN stacksaga.definition_step d"
    "    ON d.definition_id = s.definition_id AND d.step_no = e.step_no"
    " WHERE s.saga_id = $1 AND s.token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

struct Child {
    pg_uuid_t id;
    Status status;
    int32 run;
    std::string_view error;
    bool is_requested; ///< to compensate, and has not read the request
};

pg::Param token_param(const pg_uuid_t &id) {
    return pg::param(core::token_of_uuid(id.data).value());
}

std::optional<Child> find_child(const Saga &saga, int16 step_no) {
    pg::Rows rows = find_latest_child.run(pg::param(saga.id), pg::param(step_no));
    if (rows.empty())
        return std::nullopt;
    return Child{.id = rows.uuid(0, 0),
                 .status = *core::status_of(rows.text(0, 1)),
                 .run = rows.int4(0, 2),
                 .error = rows.optional_text(0, 3).value_or(""),
                 .is_requested = rows.boolean(0, 4)};
}

void notify(const pg_uuid_t &id, WorkPurpose purpose, int16 step_no, TimestampTz now) {
    add_notice.run(pg::param(id), token_param(id), pg::param(core::name_of(purpose)),
                   pg::param(step_no), pg::param_time(now));
    CRASH_POINT("child: notice written");
    wake_workers_at_commit();
}

/// A request that stands is not written again: the child that is just reading it may wait to notify
/// this saga of its end, so waiting for that child would be a deadlock.
void request_compensation(const Saga &saga, const Child &child) {
    if (!child.is_requested)
        notify(child.id, WorkPurpose::compensation_request, no_step, saga.now);
}

/// No key gives the same id: names of sagas are not empty.
pg_uuid_t child_id(const Saga &saga, const Step &step, int32 run) {
    return keyed_saga_id("", psprintf("%s:%d", uuid_text(saga.id), step.no), run);
}

void start_child(const Saga &saga, const Step &step, int32 run) {
    const Definition &definition = find_definition(step.child_saga, std::nullopt);
    NewSaga child{.id = child_id(saga, step, run),
                  .definition = &definition,
                  .ring = ring_of_id(saga.ring_id),
                  .run = run,
                  .input = saga.input,
                  .headers = saga.headers,
                  .fingerprint = fingerprint_of(saga.input),
                  .parent_id = saga.id,
                  .parent_step = step.no,
                  .due_at = saga.now,
                  .now = saga.now};
    if (definition.deadline_us)
        child.deadline_at = pg::time_plus(saga.now, *definition.deadline_us);
    CRASH_POINT("child: before its start");
    if (!insert_saga(child))
        elog(ERROR, "child saga %s exists already", uuid_text(child.id));
}

Datum output_of(const Child &child) {
    return select_output.run(pg::param(child.id), token_param(child.id)).value(0, 0);
}

void settle_action(Saga &saga, const Step &step, const Work &work, const Child &child) {
    if (child.status == Status::completed)
        step_completed(saga, step, work, pg::param_datum(JSONBOID, output_of(child)));
    else if (child.status == Status::failed)
        step_failed(
            saga, step, work,
            {.failure_class = FailureClass::non_retryable,
             .outcome_known = true,
             .error = psprintf("saga %s failed: %s", uuid_text(child.id), clip(child.error)),
             .since = saga.now,
             .was_never_done = true});
}

/// The child has read the compensation request and does not compensate.
bool has_refused(const Child &child) {
    return child.status == Status::completed && !child.is_requested;
}

void settle_compensation(Saga &saga, const Step &step, const Work &work, const Child &child) {
    if (child.status == Status::failed)
        step_completed(saga, step, work, pg::param_null(JSONBOID));
    else if (has_refused(child))
        step_failed(
            saga, step, work,
            {.failure_class = FailureClass::non_retryable,
             .outcome_known = true,
             .error = psprintf("saga %s has completed an irreversible step", uuid_text(child.id)),
             .since = saga.now});
}

} // namespace

bool child_stands(const Saga &saga, const Step &step) {
    std::optional<Child> child = find_child(saga, step.no);
    return child && child->status != Status::failed;
}

void run_child_step(Saga &saga, const Step &step, const Work &work, std::string_view worker) {
    Work attempt = work;
    attempt.attempt = work.attempt + 1;
    attempt.started_at = saga.now;
    attempt.worker = worker;
    attempt_begins(saga);
    std::optional<Child> child = find_child(saga, step.no);
    if (work.direction == Direction::act) {
        // An operator who retries the step wants a new child, not one that has failed.
        if (!child || child->status == Status::failed)
            start_child(saga, step, child ? child->run + 1 : 0);
    } else if (!child || child->status == Status::failed) {
        step_completed(saga, step, attempt, pg::param_null(JSONBOID));
        return;
    } else {
        request_compensation(saga, *child);
    }
    CRASH_POINT("child: started, parent does not wait");
    begin_wait(saga, attempt, pg::time_plus(saga.now, step.timeout_us), worker);
    if (work.direction == Direction::act && child && child->status == Status::completed)
        settle_action(saga, step, attempt, *child);
}

void child_timed_out(Saga &saga, const Step &step, const Work &work) {
    const core::RetryPolicy &policy = saga.definition->rules(step, work.direction).policy;
    bool attempts_left =
        policy.max_attempts == 0 || work.attempt - work.attempt_base < policy.max_attempts;
    // The outcome of the child is unknown: the step is compensated, and its fallback is not tried.
    // A child that cannot compensate is waited for; the row stays for its late end.
    bool unknown = work.direction == Direction::act && !attempts_left;
    step_failed(saga, step, work,
                {.failure_class = unknown ? FailureClass::unknown : FailureClass::retryable,
                 .outcome_known = false,
                 .error = "the saga took longer than the step's timeout",
                 .since = work.due_at,
                 .keep_lease = true});
}

void child_settled(Saga &saga, int16 step_no) {
    remove_saga_work(saga, WorkPurpose::child_settled, step_no);
    CRASH_POINT("child: notice removed, parent unchanged");
    const Step &step = saga.definition->step(step_no);
    std::optional<Child> child = find_child(saga, step_no);
    if (!child)
        return;
    std::optional<Work> action = find_work(saga, step_no, Direction::act);
    if (action && action->attempt > 0 && !action->falling_back) {
        settle_action(saga, step, *action, *child);
        return;
    }
    std::optional<Work> compensation = find_work(saga, step_no, Direction::compensate);
    if (compensation && compensation->attempt > 0)
        settle_compensation(saga, step, *compensation, *child);
}

void notify_parent(const Saga &saga) {
    notify(*saga.parent_id, WorkPurpose::child_settled, saga.parent_step, saga.now);
}

void request_compensation_of_children(const Saga &saga) {
    for (const Step &s : saga.definition->steps) {
        if (s.traits().waits_for != core::StepWait::child || !find_work(saga, s.no, Direction::act))
            continue;
        if (std::optional<Child> child = find_child(saga, s.no))
            request_compensation(saga, *child);
    }
}

void compensate_for_parent(Saga &saga) {
    remove_saga_work(saga, WorkPurpose::compensation_request);
    const char *error = "the parent saga requested its compensation";
    bool may_compensate = saga.direction == Direction::act && !is_past_pivot(saga);
    switch (saga.status) {
    case Status::completed:
        if (may_compensate) {
            change_status(saga, Direction::compensate,
                          {.to = Status::compensating, .error = error});
            compensate_next(saga);
            break;
        }
        notify_parent(saga);
        break;
    case Status::failed:
        notify_parent(saga);
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

} // namespace stacksaga
