#include "src/worker/crash_charge.hpp"

#include "core/saga.hpp"
#include "core/saga_engine.hpp"
#include "core/saga_state.hpp"
#include "core/snapshot_window.hpp"
#include "core/token.hpp"
#include "core/work_purpose.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/query.hpp"
#include "src/common/limits.hpp"
#include "src/handler/crash_record.hpp"
#include "src/outbox/delivery_retry.hpp"
#include "src/outbox/log_lock.hpp"
#include "src/outbox/log_tick.hpp"
#include "src/outbox/outbox.hpp"
#include "src/outbox/position.hpp"
#include "src/saga/work_item.hpp"

namespace stacksaga {

namespace {

constexpr std::string_view batch_error =
    "the handler ended its process with a batch that this was in";

constinit pg::Statement count_crashes{
    "SELECT coalesce(sum(crashes), 0) FROM stacksaga.failure"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND step_no = $3 AND direction = $4"};
constinit pg::Statement find_saga{
    "SELECT FROM stacksaga.saga"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

std::string_view error_of(const CrashRecord &record) {
    return record.has_overrun ? overrun_error : core::crash_error;
}

/// Whether the message has failed for good now: its handler has ended its process twice in a row.
/// One death after other failures says little, since a process may end for another reason just
/// then.
bool is_killer(const Message &m) {
    return m.attempt >= crashes_max && m.deaths > 0;
}

/// The recorded message, if the recorded attempt is still its next one.
std::optional<Message> find_named(const Subscription &s, const RecordedMessage &named,
                                  const Position &position, TimestampTz now) {
    if (named.is_retry) {
        std::optional<Message> m =
            find_retry(s, core::Token::from_int64(named.token), named.tick, named.number);
        if (m && named.is_fallback)
            --m->attempt;
        return m && m->attempt == named.attempt ? m : std::nullopt;
    }
    std::span<Message> messages =
        read_log_again(s.filter, named.partition, position.at, named.end).messages;
    if (messages.empty() || messages.back().number != named.number)
        return std::nullopt;
    mark_in_doubt(position, messages);
    Disposition disposition;
    decide_dispositions(s, messages.last(1), now, {&disposition, 1});
    if (disposition != Disposition::deliver)
        return std::nullopt;
    return messages.back();
}

/// Whether ticks reach so far. The crash may have lost the last tick, whose commit no session had
/// waited for: a position behind it would be beyond the messages of the tick that replaces it.
bool is_ticked(core::LogPosition until) {
    return last_tick() >= until.tick + (until.number > 0 ? 1 : 0);
}

bool saga_exists(const pg_uuid_t &id) {
    return !find_saga.run(pg::param(id), pg::param(core::token_of_uuid(id.data).value())).empty();
}

void log_crash(const Subscription &s, std::string_view what, std::string_view worker) {
    ereport(LOG, (errmsg("subscription \"%s\": the handler ended the process of %.*s", clip(s.name),
                         static_cast<int>(worker.size()), worker.data()),
                  errdetail("It ran with %s.", what.data())));
}

/// Charges the attempt as a failure, from the third one on for good. Does nothing when another
/// session has settled the message since. False: its partition is locked.
bool charge_message(const CrashRecord &record, std::string_view worker) {
    const RecordedMessage &named = record.message;
    const TimestampTz now = pg::clock_now();
    if (!hold_settings(named.subscription_id, false))
        return false;
    const Subscription *s = find_subscription(named.subscription_id);
    if (s == nullptr)
        return true;
    std::optional<Position> position = lock_position(s->id, named.partition, false);
    if (!position)
        return false;
    std::optional<Message> m = find_named(*s, named, *position, now);
    if (!m)
        return true;
    log_crash(*s, psprintf("message %s", uuid_text(m->id)), worker);
    MessageFailure failure{.failure_class = is_killer(*m) ? core::FailureClass::non_retryable
                                                          : core::FailureClass::retryable,
                           .error = error_of(record),
                           .process_died = true};
    CRASH_POINT("crash: before a message is charged");
    if (named.is_fallback)
        fail_fallback(*s, *m, failure, now);
    else
        fail_message(*s, *m, failure, now);
    return true;
}

/// One of the batch's messages ended the process: all of them become retries, which are delivered
/// one by one. Does nothing in partitions whose position has moved since. False: a partition is
/// locked.
bool charge_batch(const RecordedBatch &batch, std::string_view worker) {
    const TimestampTz now = pg::clock_now();
    if (!hold_settings(batch.subscription_id, false))
        return false;
    const Subscription *s = find_subscription(batch.subscription_id);
    if (s == nullptr)
        return true;
    size_t count = 0;
    for (const RecordedBatch::Part &part :
         std::span{batch.parts}.first(static_cast<size_t>(batch.count))) {
        std::optional<Position> position = lock_position(s->id, part.partition, false);
        if (!position)
            return false;
        // The batch began further on where the lost turn had copied out others before it.
        if (part.from < position->at || !is_ticked(part.until))
            continue;
        count_death(*s, part.partition, batch_error, now);
        std::span<Message> messages =
            read_log_again(s->filter, part.partition, position->at, part.until).messages;
        mark_in_doubt(*position, messages);
        auto *dispositions =
            static_cast<Disposition *>(palloc(sizeof(Disposition) * (messages.size() + 1)));
        decide_dispositions(*s, messages, now, {dispositions, messages.size()});
        for (size_t i = 0; i < messages.size(); ++i) {
            if (dispositions[i] == Disposition::deliver)
                copy_out_after_death(*s, messages[i], batch_error, now);
            else if (dispositions[i] != Disposition::settled &&
                     dispositions[i] != Disposition::over)
                copy_out(*s, messages[i], dispositions[i]);
        }
        count += messages.size();
        CRASH_POINT("crash: batch copied out, position not moved");
        if (part.until != position->at)
            move_position(s->id, *position, part.until, now);
    }
    log_crash(*s, psprintf("a batch of %zu messages of the log", count), worker);
    return true;
}

void log_crash(const RecordedStep &step, std::string_view worker, const char *detail) {
    ereport(LOG, (errmsg("saga %s: the handler of step %d ended the process of %.*s",
                         uuid_text(step.saga_id), step.step_no, static_cast<int>(worker.size()),
                         worker.data()),
                  errdetail("%s", detail)));
}

/// A step that ran ahead has no work yet, unless its saga has gone on without it since.
void charge_ahead(Saga &saga, const RecordedStep &step, std::string_view worker) {
    const Step &definition = saga.definition->step(step.step_no);
    if (step.attempt > 0 || !core::died_ahead(saga, definition, step.direction, worker))
        return;
    log_crash(step, worker, "It ran ahead; the attempt is charged when its turn comes.");
    write_saga(saga);
}

bool charge_step(const CrashRecord &record, std::string_view worker) {
    const RecordedStep &step = record.step;
    const TimestampTz now = pg::clock_now();
    Saga *saga = lock_saga(step.saga_id, now, true);
    if (saga == nullptr)
        return !saga_exists(step.saga_id);
    const std::optional<Work> work = core::find_work(*saga, step.step_no, step.direction);
    if (!work)
        charge_ahead(*saga, step, worker);
    // Of two that find the record, the successor and who takes over its slots, the second finds the
    // attempt, or the question of verify, counted.
    if (!work || work->attempt != step.attempt || work->verifying != step.is_verify ||
        (step.is_verify && work->verify_attempts != step.verify_attempts) || work->is_claimed())
        return true;
    pg::Rows crashes =
        count_crashes.run(pg::param(saga->id), pg::param(saga->token), pg::param(step.step_no),
                          pg::param(core::name_of(step.direction)));
    const int64 count = crashes.int8(0, 0) + 1;
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
        return charge_message(record, worker);
    case Recorded::batch:
        return charge_batch(record.batch, worker);
    case Recorded::nothing:
        break;
    }
    return true;
}

} // namespace stacksaga
