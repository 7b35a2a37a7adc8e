#include "src/worker/crash_charge.hpp"

#include "core/outbox/snapshot_window.hpp"
#include "core/ring/token.hpp"
#include "core/saga/saga.hpp"
#include "core/saga/saga_engine.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/work_purpose.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/statement/query.hpp"
#include "src/common/limits.hpp"
#include "src/handler/crash_record.hpp"
#include "src/outbox/outbox.hpp"
#include "src/saga/work_item.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement count_crashes{
    "SELECT coalesce(sum(crashes), 0) FROM stacksaga.failure"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND step_no = $3 AND direction = $4"};
constinit pg::Statement find_saga{
    "SELECT FROM stacksaga.saga"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

bool saga_exists(const pg_uuid_t &id) {
    return !find_saga.run(pg::param(id), pg::param(core::token_of_uuid(id.data).value())).empty();
}

void log_crash(const RecordedStep &step, std::string_view worker, const char *detail) {
    ereport(LOG, (errmsg("saga %s: the handler of step %d ended the process of %.*s",
                         uuid_text(step.saga_id), step.step_no, static_cast<int>(worker.size()),
                         worker.data()),
                  errdetail("%s", detail)));
}

/// A step that ran ahead has no row of work yet, unless its saga has been changed without it since.
void charge_ahead(Saga &saga, const RecordedStep &step, std::string_view worker) {
    const Step &definition = saga.definition->step(step.step_no);
    if (step.attempt > 0 || !core::crashed_ahead(saga, definition, step.direction, worker))
        return;
    log_crash(step, worker, "It ran ahead; the attempt is charged when its turn comes.");
    write_saga(saga);
}

bool charge_step(const CrashRecord &record, std::string_view worker) {
    const RecordedStep &step = record.step;
    const TimestampTz now = pg::clock_now();
    // Does not wait for the saga's lock, since a worker that waits sends no heartbeat: the crash is
    // still to be charged then. For a saga that was removed there is nothing to charge.
    Saga *saga = lock_saga(step.saga_id, now, true);
    if (saga == nullptr)
        return !saga_exists(step.saga_id);
    const std::optional<Work> work = core::find_work(*saga, step.step_no, step.direction);
    if (!work)
        charge_ahead(*saga, step, worker);
    // The worker's successor and the node that takes over its slots may both find the record. The
    // second one finds the attempt, or the question of verify, counted.
    if (!work || work->attempt != step.attempt || work->verifying != step.is_verify ||
        (step.is_verify && work->verify_attempts != step.verify_attempts) || work->is_claimed())
        return true;
    pg::Rows crashes =
        count_crashes.run(pg::param(saga->id), pg::param(saga->token), pg::param(step.step_no),
                          pg::param(core::name_of(step.direction)));
    const int64 count = crashes.int8(0) + 1;
    log_crash(step, worker,
              psprintf("It has done so " INT64_FORMAT " times; at %d the saga is parked.", count,
                       crashes_max));
    CRASH_POINT("crash: before a step is charged");
    fail_item({.saga_id = step.saga_id,
               .slot = 0,
               .purpose = core::WorkPurpose::step,
               .step_no = step.step_no,
               .direction = step.direction,
               .attempt = step.attempt},
              worker,
              {.sqlstate = core::crash_sqlstate,
               .message = error_of(record),
               .timed_out = false,
               .is_unusable = false,
               .is_for_worker = false,
               .is_crash = true,
               .has_crashed_too_often = count >= crashes_max});
    return true;
}

} // namespace

bool charge_crash(const CrashRecord &record, std::string_view worker) {
    switch (record.kind) {
    case Recorded::step:
        return charge_step(record, worker);
    case Recorded::message:
        return charge_crashed_message(record, worker);
    case Recorded::batch:
        return charge_crashed_batch(record.batch, worker);
    case Recorded::nothing:
        break;
    }
    return true;
}

} // namespace stacksaga
