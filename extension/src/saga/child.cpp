#include "src/saga/child.hpp"

#include "core/ring/token.hpp"
#include "core/saga/saga.hpp"
#include "core/saga/saga_children.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/work_purpose.hpp"
#include "core/time/length.hpp"

#include "pg/citus/shard_lock.hpp"
#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/fault_point.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/common/wake.hpp"
#include "src/dedupe/fingerprint.hpp"
#include "src/ring/rings.hpp"
#include "src/saga/saga_tables.hpp"
#include "src/saga/start.hpp"

namespace stacksaga {

namespace {

using core::Status;
using core::WorkPurpose;

// Status and compensation request in one statement: a child that begins to compensate removes the
// request and changes its status in one transaction. Two statements could see the request removed
// and the status unchanged, which is how a refused request looks.
enum class ChildColumn : uint8_t { status, error, is_requested };
constinit pg::Select<ChildColumn> read_child{
    "SELECT c.status, c.error,"
    "       EXISTS (SELECT FROM stacksaga.work w"
    "                WHERE w.saga_id = $1 AND w.token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "                  AND w.purpose = 'compensation_request') AS is_requested"
    "  FROM stacksaga.saga c"
    " WHERE c.saga_id = $1 AND c.token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};
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
    "    ON e.saga_id = s.saga_id AND e.token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND e.direction = 'act'"
    "  JOIN stacksaga.definition_step d"
    "    ON d.definition_id = s.definition_id AND d.step_no = e.step_no"
    " WHERE s.saga_id = $1 AND s.token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

struct FoundChild {
    pg_uuid_t id;
    Status status;
    int32 run;
    std::string_view error;
    bool is_requested; ///< to compensate, and has not read the request
};

pg::Param token_param(const pg_uuid_t &id) {
    return pg::param(core::token_of_uuid(id.data).value());
}

bool exists(const pg_uuid_t &id) {
    const std::array key{pg::param(id), token_param(id)};
    return saga_table.find_one({.key = key}).has_value();
}

std::optional<FoundChild> find_child(const Saga &saga, int16 step_no) {
    const int32 runs = count_child_runs(saga.id, step_no);
    if (runs == 0)
        return std::nullopt;
    const pg_uuid_t id = child_id(saga.id, step_no, runs - 1);
    const auto rows = read_child.run(pg::param(id), token_param(id));
    if (rows.empty())
        elog(ERROR, "child saga %s has disappeared", uuid_text(id));
    return FoundChild{.id = id,
                      .status = *core::status_of(rows.text(0, ChildColumn::status)),
                      .run = runs - 1,
                      .error = rows.optional_text(0, ChildColumn::error).value_or(""),
                      .is_requested = rows.boolean(0, ChildColumn::is_requested)};
}

void notify(const pg_uuid_t &id, WorkPurpose purpose, int16 step_no, TimestampTz now) {
    add_notice.run(pg::param(id), token_param(id), pg::param(core::name_of(purpose)),
                   pg::param(step_no), pg::param_time(now));
    CRASH_POINT("child: notice written");
    wake_workers_at_commit();
}

void start_child(const Saga &saga, const Step &step, int32 run) {
    const Definition &definition = find_definition(step.child_saga, std::nullopt);
    NewSaga child{.id = child_id(saga.id, step.no, run),
                  .definition = &definition,
                  .ring = ring_of_id(saga.ring_id),
                  .run = run,
                  .input = saga.input,
                  .headers = saga.headers,
                  .fingerprint = fingerprint_of(saga.input),
                  .traits = saga.traits,
                  .parent_id = saga.id,
                  .parent_step = step.no,
                  .due_at = saga.now,
                  .now = saga.now};
    if (definition.deadline)
        child.deadline_at = core::time_plus(saga.now, *definition.deadline);
    CRASH_POINT("child: before its start");
    if (!insert_saga(child))
        elog(ERROR, "child saga %s exists already", uuid_text(child.id));
    CRASH_POINT("child: started, its parent not committed");
}

/// Does not write a standing request again: the child that is just reading it may wait to notify
/// this saga of its end, so waiting for that child would be a deadlock.
void request_compensation(const Saga &saga, const Step &step) {
    const std::optional<FoundChild> child = find_child(saga, step.no);
    if (child && !child->is_requested)
        notify(child->id, WorkPurpose::compensation_request, core::no_step, saga.now);
}

Datum output_of(const FoundChild &child) {
    FAULT_POINT("read: child's output", child.id);
    return select_output.run(pg::param(child.id), token_param(child.id)).value(0);
}

/// The child saga, with the columns that the engine may need.
core::Child describe(const FoundChild &found) {
    core::Child child{.status = found.status,
                      .run = found.run,
                      .is_requested = found.is_requested,
                      .output = {},
                      .why_failed = {},
                      .why_irreversible = {}};
    const char *id = uuid_text(found.id);
    if (found.status == Status::completed) {
        child.output = value_of(output_of(found));
        child.why_irreversible = psprintf("saga %s has completed an irreversible step", id);
    } else if (found.status == Status::failed) {
        child.why_failed = psprintf("saga %s failed: %s", id, clip(found.error));
    }
    return child;
}

} // namespace

/// No key gives the same id: names of sagas are not empty.
pg_uuid_t child_id(const pg_uuid_t &parent, int16 step_no, int32 run) {
    return keyed_saga_id("", psprintf("%s:%d", uuid_text(parent), step_no), run);
}

/// Looks up the runs 0, 1, 3, 7 … and then searches between the last one found and the first one
/// missing.
int32 count_child_runs(const pg_uuid_t &parent, int16 step_no) {
    int32 count_max = 0;
    while (exists(child_id(parent, step_no, count_max)))
        count_max = 2 * count_max + 1;
    int32 count_min = (count_max + 1) / 2;
    while (count_min < count_max) {
        const int32 middle = count_min + (count_max - count_min) / 2;
        if (exists(child_id(parent, step_no, middle)))
            count_min = middle + 1;
        else
            count_max = middle;
    }
    return count_min;
}

std::optional<core::Child> load_child(const Saga &saga, const Step &step) {
    const std::optional<FoundChild> found = find_child(saga, step.no);
    if (!found)
        return std::nullopt;
    return describe(*found);
}

void heed_ancestors(Saga &saga) {
    for (std::optional<pg_uuid_t> id = saga.parent_id; id;) {
        const std::array key{pg::param(*id), token_param(*id)};
        const std::optional<pg::TableRow> row = saga_table.find_one({.key = key});
        if (!row)
            break;
        const core::Status status = *core::status_of(row->text(SagaColumn::status));
        core::Ancestor ancestor{
            .status = status,
            .direction = *core::direction_of(row->text(SagaColumn::direction)),
            .compensation_requested = std::nullopt,
            .is_suspended = status == Status::suspended || !row->is_null(SagaColumn::suspended_at),
            .on_failure = load_definition(row->int4(SagaColumn::definition_id)).on_failure};
        if (!row->is_null(SagaColumn::compensation_requested))
            ancestor.compensation_requested =
                core::compensation_request_of(row->text(SagaColumn::compensation_requested));
        core::note_ancestor(saga.ancestry, ancestor);
        id.reset();
        if (!row->is_null(SagaColumn::parent_id))
            id = row->uuid(SagaColumn::parent_id);
    }
    if (saga.is_child)
        core::heed_ancestors(saga, compensation_of_parent);
}

void send_request(const Saga &saga, const core::ChildRequest &request) {
    const Step &step = saga.definition->step(request.step_no);
    switch (request.kind) {
    case core::ChildRequest::Kind::start:
        start_child(saga, step, request.run);
        break;
    case core::ChildRequest::Kind::compensate:
        request_compensation(saga, step);
        break;
    case core::ChildRequest::Kind::look: // what the child would announce is read when this is run
        notify(saga.id, WorkPurpose::child_settled, step.no, saga.now);
        break;
    }
}

Saga *lock_parent(const Saga &saga) {
    pg::hold_shard("saga", core::token_of_uuid(saga.parent_id->data).value());
    return lock_saga(*saga.parent_id, saga.now, true);
}

void notify_parent(const Saga &saga) {
    notify(*saga.parent_id, WorkPurpose::child_settled, saga.parent_step, saga.now);
}

} // namespace stacksaga
