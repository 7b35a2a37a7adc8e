// Writes the engine's decisions: markers first, notices to other sagas last.
//
// All of it commits, or none of it does: the order is for locks and for what each part reads.
// Markers and failures come before work, because the queue that a service had claimed an attempt
// from is read from the row of work as it was. Notices come last, because adding a row to another
// saga's work may wait for a session that reads that row: by then this saga has no further row of
// its own to lock.

#include "core/common/list.hpp"
#include "core/queue/claim_order.hpp"
#include "core/saga/saga.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/work_purpose.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/statement/query.hpp"
#include "src/common/counters.hpp"
#include "src/common/limits.hpp"
#include "src/common/wake.hpp"
#include "src/handler/handler_error.hpp"
#include "src/queue/queue_counters.hpp"
#include "src/queue/queue_limits.hpp"
#include "src/queue/queue_waiters.hpp"
#include "src/saga/child.hpp"
#include "src/saga/saga_tables.hpp"
#include "src/saga/store.hpp"
#include "src/work/work_table.hpp"

namespace stacksaga {

namespace {

using core::Direction;
using core::RowState;
using pg::assign;

#define THIS_SAGA " saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token "
constinit pg::Statement take_signal{"UPDATE stacksaga.saga_signal SET step_no = $4 WHERE" THIS_SAGA
                                    "AND signal_no = $3"};
// A final saga has no use for these notices; a compensation request stays.
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
/// A null stands for false, and takes no space.
pg::Param true_or_null(bool value) {
    return value ? pg::param(true) : pg::param_null(BOOLOID);
}
pg::Param param(core::Value json) {
    return pg::param_datum(JSONBOID, json.bits, json.is_null);
}

/// The row of work as it was loaded or last written; nullptr when it was neither.
StoredWork *find_stored(Saga &saga, core::WorkPurpose purpose, int16 step_no, Direction direction) {
    for (StoredWork &s : saga.stored_work)
        if (s.is_there && s.purpose == purpose && s.step_no == step_no && s.direction == direction)
            return &s;
    return nullptr;
}

/// Counts the end of an attempt, also for the queue that a service had claimed it from. That queue
/// is in the row of work, which is written later.
void count_attempt(Saga &saga, int16 step_no, Direction direction, bool is_completed) {
    const StoredWork *before = find_stored(saga, core::WorkPurpose::step, step_no, direction);
    std::optional<std::string_view> queue =
        saga.definition->step(step_no).queue_of(direction, false);
    if (before != nullptr && !before->row.is_null(WorkColumn::queue))
        queue = before->row.text(WorkColumn::queue); // it may be that of the fallback
    if (queue)
        count_answer(saga.ring_id, *queue, is_completed);
}

void write_effects(Saga &saga) {
    using Column = EffectColumn;
    for (const core::Effect &e : saga.changes.effects) {
        CRASH_POINT("step: before the marker");
        count_completed(e.direction);
        count_attempt(saga, e.step_no, e.direction, true);
        const pg::Param settled_by = e.settled_by == core::SettledBy::answer
                                         ? pg::param_null(TEXTOID)
                                         : pg::param(core::name_of(e.settled_by));
        effect_table.insert(std::array{
            assign(Column::saga_id, pg::param(saga.id)),
            assign(Column::step_no, pg::param(e.step_no)),
            assign(Column::direction, param(e.direction)),
            assign(Column::token, pg::param(saga.token)),
            assign(Column::attempt, pg::param(e.attempt)), assign(Column::lease, param(e.lease)),
            assign(Column::started_at, pg::param_time(e.started_at)),
            assign(Column::completed_at, pg::param_time(saga.now)),
            assign(Column::worker, pg::param(e.worker)),
            assign(Column::by_fallback, true_or_null(e.by_fallback)),
            assign(Column::settled_by, settled_by), assign(Column::output, param(e.output)),
            assign(Column::published, param(e.published))});
        if (e.direction == Direction::act && saga.progress.has_effects)
            note_output(saga, e.step_no, e.output);
        CRASH_POINT("step: marker written, work row still there");
    }
}

void write_settled(const Saga &saga, const core::Settled &settled) {
    const std::array key{pg::param(saga.id), pg::param(settled.step_no), param(settled.direction)};
    for (pg::TableRow &row : failure_table.find({.key = key,
                             .implied = assign(FailureColumn::token, pg::param(saga.token)),
                             .lock = pg::RowLock::no_key_update}))
        if (settled.concerns(settled.step_no, settled.direction,
                             row.int4(FailureColumn::attempt)) &&
            !row.boolean(FailureColumn::outcome_known))
            failure_table.update(row,
                                 std::array{assign(FailureColumn::outcome_known, pg::param(true))});
}

/// A verify function may be asked about the same attempt for ever: an error that it repeats is not
/// added.
pg::Param failure_error(const core::Failure &failure, const pg::TableRow *before) {
    if (before == nullptr || !failure.adds_to_error)
        return pg::param(failure.error);
    const std::string_view earlier = before->text(FailureColumn::error);
    if (earlier.ends_with(failure.error))
        return pg::param(earlier);
    if (earlier.size() > error_bytes_max)
        return pg::param(failure.error);
    return pg::param(
        std::string_view(psprintf("%.*s; %.*s", static_cast<int>(earlier.size()), earlier.data(),
                                  static_cast<int>(failure.error.size()), failure.error.data())));
}

/// The detail and context of the attempt's latest error that has any.
ErrorDetail failure_detail(const core::Failure &failure, const pg::TableRow *before) {
    const auto column = [&](FailureColumn c) {
        return before->is_null(c) ? std::nullopt : std::optional{before->text(c)};
    };
    if (before == nullptr || !failure.adds_to_error || failure.detail || failure.context)
        return {failure.detail, failure.context};
    return {column(FailureColumn::error_detail), column(FailureColumn::error_context)};
}

pg::Param crashes_of(const core::Failure &failure, const pg::TableRow *before) {
    const int32 earlier = before == nullptr || before->is_null(FailureColumn::crashes)
                              ? 0
                              : before->int4(FailureColumn::crashes);
    const int32 crashes = earlier + (failure.is_crash ? 1 : 0);
    return crashes > 0 ? pg::param(crashes) : pg::param_null(INT4OID);
}

/// A late answer to an attempt that was already counted as failed replaces its row.
void write_failure(Saga &saga, const core::NewFailure &n) {
    using Column = FailureColumn;
    const core::Failure &f = n.failure;
    count_failed(n.direction, f.failure_class);
    count_attempt(saga, n.step_no, n.direction, false);
    const std::array key{pg::param(saga.id), pg::param(n.step_no), param(n.direction),
                         pg::param(n.attempt), pg::param(saga.token)};
    std::optional<pg::TableRow> before =
        failure_table.find_one({.key = key, .lock = pg::RowLock::no_key_update});
    const ErrorDetail detail = failure_detail(f, before ? &*before : nullptr);
    const std::array what{assign(Column::error_class, pg::param(core::name_of(f.failure_class))),
                          assign(Column::outcome_known, pg::param(f.outcome_known)),
                          assign(Column::finished_at, pg::param_time(f.since)),
                          assign(Column::sqlstate, pg::param(f.sqlstate)),
                          assign(Column::error, failure_error(f, before ? &*before : nullptr)),
                          assign(Column::crashes, crashes_of(f, before ? &*before : nullptr)),
                          assign(Column::error_detail, pg::param(detail.detail)),
                          assign(Column::error_context, pg::param(detail.context))};
    if (before) {
        failure_table.update(*before, what);
    } else {
        const std::array identity{assign(Column::saga_id, key[0]),
                                  assign(Column::step_no, key[1]),
                                  assign(Column::direction, key[2]),
                                  assign(Column::attempt, key[3]),
                                  assign(Column::token, key[4]),
                                  assign(Column::lease, param(n.lease)),
                                  assign(Column::started_at, pg::param_time(n.started_at)),
                                  assign(Column::worker, pg::param(n.worker)),
                                  assign(Column::by_fallback, true_or_null(n.by_fallback))};
        std::array<pg::Assignment, identity.size() + what.size()> row;
        std::copy(what.begin(), what.end(),
                  std::copy(identity.begin(), identity.end(), row.begin()));
        failure_table.insert(row);
    }
    CRASH_POINT("step: failure written, work row unchanged");
}

void write_release(Saga &saga, const core::NewRelease &n) {
    using Column = ReleaseColumn;
    const core::Release &r = n.release;
    count_event(Counter::releases);
    std::optional<std::string_view> reason;
    if (!n.reason.empty())
        reason = n.reason;
    release_table.insert(std::array{
        assign(Column::saga_id, pg::param(saga.id)), assign(Column::step_no, pg::param(r.step_no)),
        assign(Column::direction, param(r.direction)),
        assign(Column::attempt, pg::param(r.attempt)), assign(Column::token, pg::param(saga.token)),
        assign(Column::lease, param(r.lease)),
        assign(Column::by_fallback, true_or_null(n.by_fallback)),
        assign(Column::started_at, pg::param_time(n.started_at)),
        assign(Column::released_at, pg::param_time(saga.now)),
        assign(Column::worker, pg::param(n.worker)), assign(Column::reason, pg::param(reason))});
    CRASH_POINT("step: release written, work row unchanged");
}

void write_failures(Saga &saga) {
    for (const core::Settled &s : saga.changes.settled)
        write_settled(saga, s);
    for (const core::NewFailure &n : saga.changes.failures)
        write_failure(saga, n);
    for (const core::NewRelease &n : saga.changes.releases)
        write_release(saga, n);
    if (saga.changes.retries > 0)
        count_event(Counter::retries, saga.changes.retries);
}

/// The queue of a step's row; nothing: a worker runs it.
std::optional<std::string_view> queue_of(const Saga &saga, const Work &work) {
    if (work.purpose != core::WorkPurpose::step)
        return std::nullopt;
    return saga.definition->step(work.step_no).queue_of(work.direction, work.falling_back);
}

/// Wakes the services that wait for the queue, or the workers, when the work falls due.
void wake_for(const Saga &saga, const Work &work, std::optional<std::string_view> queue) {
    if (queue && !work.verifying)
        wake_waiters_at_commit(saga.ring_id, *queue);
    else
        wake_workers_at_commit(work.due_at);
}

[[noreturn]] void raise_changed(const Saga &saga, const Work &work) {
    // The saga's lock guards its work. The decision rests on a row that somebody has changed by
    // hand since, so nothing of it may be written.
    elog(ERROR, "work of step %d of saga %s was changed without the lock of its saga", work.step_no,
         uuid_text(saga.id));
}

StoredWork &stored(Saga &saga, const Work &work) {
    if (StoredWork *known = find_stored(saga, work.purpose, work.step_no, work.direction))
        return *known;
    const std::array key{pg::param(saga.id), purpose_param(work.purpose), pg::param(work.step_no),
                         param(work.direction), pg::param(saga.token)};
    const std::optional<pg::TableRow> row = work_table.find_one({.key = key});
    if (!row)
        raise_changed(saga, work);
    saga.stored_work.push(saga.memory, {.purpose = work.purpose,
                                        .step_no = work.step_no,
                                        .direction = work.direction,
                                        .row = *row,
                                        .is_there = true});
    return saga.stored_work.back();
}

/// The place of a step's turn among the steps of its queue.
int16 rank_of(const Saga &saga, const Work &work) {
    return work.purpose == core::WorkPurpose::step && work.direction == Direction::compensate
               ? core::compensation_rank
               : saga.traits.priority;
}

using WorkValues = std::array<pg::Assignment, 17>;

/// The columns of a row of work that change.
WorkValues values_of(const Saga &saga, const Work &w, std::optional<std::string_view> queue) {
    using Column = WorkColumn;
    return {
        assign(Column::due_at, pg::param_time(w.due_at)),
        assign(Column::queue, pg::param(queue)),
        assign(Column::attempt, pg::param(w.attempt)),
        assign(Column::attempt_base, pg::param(w.attempt_base)),
        assign(Column::lease, param(w.lease)),
        assign(Column::lease_until, pg::param_time(w.lease_until)),
        assign(Column::started_at, pg::param_time(w.started_at)),
        assign(Column::resume_at, pg::param_time(w.resume_at)),
        assign(Column::verifying, pg::param(w.verifying)),
        assign(Column::verify_attempts,
               w.verify_attempts > 0 ? pg::param(w.verify_attempts) : pg::param_null(INT4OID)),
        assign(Column::falling_back, pg::param(w.falling_back)),
        assign(Column::deferred, pg::param(w.deferred)),
        assign(Column::worker, pg::param(w.worker)),
        assign(Column::postponed, pg::param_null(INT2OID)),
        assign(Column::place_at, pg::param_time(w.place_at)),
        assign(Column::releases, w.releases > 0 ? pg::param(w.releases) : pg::param_null(INT4OID)),
        assign(Column::paused_saga,
               w.is_held_back ? pg::param(saga.definition->saga) : pg::param_null(TEXTOID))};
}

using NewWorkRow = std::array<pg::Assignment, std::tuple_size_v<WorkValues> + 9>;

NewWorkRow new_row(const Saga &saga, const Work &w, const WorkValues &values) {
    using Column = WorkColumn;
    const std::array identity{
        assign(Column::saga_id, pg::param(saga.id)),
        assign(Column::token, pg::param(saga.token)),
        assign(Column::purpose, purpose_param(w.purpose)),
        assign(Column::step_no, pg::param(w.step_no)),
        assign(Column::direction, param(w.direction)),
        assign(Column::ring_id, pg::param(saga.ring_id)),
        assign(Column::slot, pg::param(saga.slot)),
        assign(Column::rank, pg::param(rank_of(saga, w))),
        assign(Column::group_key, pg::param(saga.traits.group_key.value_or("")))};
    NewWorkRow row;
    std::copy(values.begin(), values.end(),
              std::copy(identity.begin(), identity.end(), row.begin()));
    return row;
}

/// The end of a lease makes room in a queue that has limits.
void wake_for_room(const Saga &saga, const pg::TableRow &before, bool is_leased) {
    if (is_leased || before.is_null(WorkColumn::lease_until) || before.is_null(WorkColumn::queue))
        return;
    // Without limits no service waits for the end of a lease, so nobody is woken in vain.
    const std::string_view queue = before.text(WorkColumn::queue);
    if (limits_of(saga.ring_id, queue).has_any())
        wake_waiters_at_commit(saga.ring_id, queue);
}

/// How the progress of an attempt changes: by a report, or since the attempt is over.
std::optional<pg::Assignment> progress_change(const Saga &saga, const Work &w,
                                              const pg::TableRow &before) {
    using Column = WorkColumn;
    if (saga.report && w.lease == saga.report->lease)
        return assign(Column::progress, saga.report->progress);
    if (before.is_null(Column::progress) ||
        (w.is_claimed() && w.lease == before.optional_int8(Column::lease)))
        return std::nullopt;
    return assign(Column::progress, pg::param_null(JSONBOID));
}

bool update_row(const Saga &saga, const Work &w, const WorkValues &values, pg::TableRow &before) {
    const std::optional<pg::Assignment> progress = progress_change(saga, w, before);
    if (!progress)
        return work_table.update(before, values);
    std::array<pg::Assignment, std::tuple_size_v<WorkValues> + 1> changes;
    std::copy(values.begin(), values.end(), changes.begin());
    changes.back() = *progress;
    return work_table.update(before, changes);
}

void write_row(Saga &saga, const core::WorkRow &row) {
    const Work &w = row.work;
    const std::optional<std::string_view> queue = queue_of(saga, w);
    const WorkValues values = values_of(saga, w, queue);
    if (row.state == RowState::added) {
        work_table.insert(new_row(saga, w, values));
    } else {
        StoredWork &before = stored(saga, w);
        wake_for_room(saga, before.row, w.is_claimed());
        if (!update_row(saga, w, values, before.row))
            raise_changed(saga, w);
    }
    CRASH_POINT("step: work row written, nobody woken");
    // Only noted here. The wake happens after the commit, when others can see the row.
    if (row.wakes && !w.is_held_back)
        wake_for(saga, w, queue);
}

void write_work(Saga &saga) {
    for (const core::WorkRow &row : saga.work)
        if (row.state == RowState::removed) {
            StoredWork &before = stored(saga, row.work);
            wake_for_room(saga, before.row, false);
            if (!work_table.remove(before.row))
                raise_changed(saga, row.work);
            before.is_there = false;
            CRASH_POINT("step: work row removed");
        }
    for (const core::WorkRow &row : saga.work)
        if (row.state == RowState::added || row.state == RowState::changed)
            write_row(saga, row);
}

/// When retention may remove the saga, which ends now; nothing: as the settings say by then.
std::optional<TimestampTz> removal_of(const Saga &saga) {
    if (saga.parent_id)
        return DT_NOEND; // it goes with its parent
    const std::optional<int64> keep = saga.full_definition().keep_us;
    if (!keep)
        return std::nullopt;
    return *keep < 0 ? DT_NOEND : pg::time_plus(saga.now, *keep);
}

void write_status(Saga &saga, const core::SagaRow &row) {
    using Column = SagaColumn;
    std::optional<TimestampTz> finished_at, remove_at;
    if (core::is_final(row.status)) {
        finished_at = saga.now;
        remove_at = removal_of(saga);
    }
    std::optional<std::string_view> parked_direction;
    if (row.parked_direction)
        parked_direction = core::name_of(*row.parked_direction);
    std::optional<std::string_view> requested;
    if (row.compensation_requested)
        requested = core::name_of(*row.compensation_requested);
    CRASH_POINT("saga: before the status");
    saga_table.update(*saga.table_row,
                      std::array{assign(Column::status, pg::param(core::name_of(row.status))),
                                 assign(Column::direction, param(row.direction)),
                                 assign(Column::updated_at, pg::param_time(saga.now)),
                                 assign(Column::finished_at, pg::param_time(finished_at)),
                                 assign(Column::failed_step, param(row.failed_step)),
                                 assign(Column::error, pg::param(row.error)),
                                 assign(Column::parked_step, param(row.parked_step)),
                                 assign(Column::parked_direction, pg::param(parked_direction)),
                                 assign(Column::compensation_requested, pg::param(requested)),
                                 assign(Column::suspended_at, pg::param_time(row.suspended_at)),
                                 assign(Column::parked_at, pg::param_time(row.parked_at)),
                                 assign(Column::deadline_at, pg::param_time(saga.deadline_at)),
                                 assign(Column::remove_at, pg::param_time(remove_at))});
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
    saga.changes.releases.clear();
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
    if (saga.changes.moves_deadline && saga.changes.rows.empty())
        saga.changes.rows.push(saga.memory, saga.row);
    // One update for each status that the saga passes through: each must be an edge of the state
    // machine, and each is counted.
    for (const core::SagaRow &row : saga.changes.rows)
        write_status(saga, row);
    if (const std::optional<core::VoidedRequest> &voided = saga.changes.voided_request)
        write_action(saga, {.action = "void",
                            .status_before = saga.stored.status,
                            .reason = psprintf("%s: the step is irreversible and done",
                                               core::name_of(voided->request).data()),
                            .step_no = voided->step_no});
    if (saga.changes.removes_notices)
        delete_notices.run(pg::param(saga.id), pg::param(saga.token));
    for (const core::ChildRequest &request : saga.changes.children)
        send_request(saga, request);
    if (saga.changes.notifies_parent)
        notify_parent(saga);
    forget_changes(saga);
}

} // namespace stacksaga
