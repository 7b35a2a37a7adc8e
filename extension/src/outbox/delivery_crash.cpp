// Charges the messages that a process was delivering when a handler ended it.

#include "core/outbox/message_state.hpp"
#include "core/outbox/snapshot_window.hpp"
#include "core/ring/token.hpp"
#include "core/saga/saga_state.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "src/common/limits.hpp"
#include "src/outbox/delivery/delivery_retry.hpp"
#include "src/outbox/log/log_lock.hpp"
#include "src/outbox/log/log_tick.hpp"
#include "src/outbox/outbox.hpp"
#include "src/outbox/subscription/position.hpp"

namespace stacksaga {

namespace {

constexpr std::string_view batch_error =
    "the handler ended its process with a batch that this was in";

/// Whether the message has failed for good now: its handler has ended its process twice in a row.
/// A single crash after other failures says little, since the process may have ended for another
/// reason just then.
bool is_killer(const Message &m) {
    return m.attempt >= crashes_max && m.crashes > 0;
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

/// Whether ticks reach `until`. The crash may have lost the last tick, whose commit no session had
/// waited for: a position behind it would be beyond the messages of the tick that replaces it.
bool is_ticked(core::LogPosition until) {
    return last_tick() >= until.tick + (until.number > 0 ? 1 : 0);
}

void log_crash(const Subscription &s, std::string_view what, std::string_view worker) {
    ereport(LOG, (errmsg("subscription \"%s\": the handler ended the process of %.*s", clip(s.name),
                         static_cast<int>(worker.size()), worker.data()),
                  errdetail("It ran with %s.", what.data())));
}

} // namespace

bool charge_crashed_message(const CrashRecord &record, std::string_view worker) {
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
                           .process_crashed = true};
    CRASH_POINT("crash: before a message is charged");
    if (named.is_fallback)
        fail_fallback(*s, *m, failure, now);
    else
        fail_message(*s, *m, failure, now);
    return true;
}

bool charge_crashed_batch(const RecordedBatch &batch, std::string_view worker) {
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
        count_crash(*s, part.partition, batch_error, now);
        std::span<Message> messages =
            read_log_again(s->filter, part.partition, position->at, part.until).messages;
        mark_in_doubt(*position, messages);
        auto *dispositions =
            static_cast<Disposition *>(palloc(sizeof(Disposition) * (messages.size() + 1)));
        decide_dispositions(*s, messages, now, {dispositions, messages.size()});
        for (size_t i = 0; i < messages.size(); ++i) {
            if (dispositions[i] == Disposition::deliver)
                copy_out_after_crash(*s, messages[i], batch_error, now);
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

} // namespace stacksaga
