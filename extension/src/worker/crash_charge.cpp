#include "src/worker/crash_charge.hpp"

#include "pg/clock.hpp"
#include "src/common/limits.hpp"
#include "src/outbox/delivery_retry.hpp"
#include "src/outbox/log_lock.hpp"
#include "src/outbox/log_tick.hpp"
#include "src/outbox/position.hpp"

namespace stacksaga {

namespace {

constexpr std::string_view batch_error =
    "the handler ended its process with a batch that this was in";

constinit pg::Statement has_died_before{
    "SELECT FROM stacksaga.message_retry"
    " WHERE subscription_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND tick = $3 AND number = $4 AND last_error = $5"};

/// Whether it is dead now. An attempt that failed otherwise says nothing about this: a process may
/// be ended for another reason just then.
bool is_killer(const Subscription &s, const Message &m) {
    return m.attempt >= deaths_max &&
           !has_died_before
                .run(pg::param(s.id), pg::param(m.token.value()), pg::param(m.tick),
                     pg::param(m.number), pg::param(death_error))
                .empty();
}

/// The message that was named, if it still waits for the attempt that was named.
std::optional<Message> find_named(const Subscription &s, const NamedMessage &named,
                                  const Position &position, TimestampTz now) {
    if (named.is_aside) {
        std::optional<Message> m =
            find_aside(s, core::Token::from_int64(named.token), named.tick, named.number);
        if (m && named.is_fallback)
            --m->attempt;
        return m && m->attempt == named.attempt ? m : std::nullopt;
    }
    std::span<Message> messages =
        read_log_again(s.filter, named.partition, position.at, named.end).messages;
    if (messages.empty() || messages.back().number != named.number)
        return std::nullopt;
    LogFate fate;
    decide_fates(s, messages.last(1), now, {&fate, 1});
    if (fate != LogFate::deliver)
        return std::nullopt;
    return messages.back();
}

/// Whether the log has been cut so far. The crash may have taken the last tick along, which nobody
/// had waited for: moved behind it, the position would be beyond what comes in its place.
bool is_ticked(core::LogPosition until) {
    return last_tick() >= until.tick + (until.number > 0 ? 1 : 0);
}

void log_death(const Subscription &s, std::string_view what, std::string_view worker) {
    ereport(LOG, (errmsg("subscription \"%s\": the handler ended the process of %.*s", clip(s.name),
                         static_cast<int>(worker.size()), worker.data()),
                  errdetail("It ran with %s.", what.data())));
}

} // namespace

bool charge_message(const NamedMessage &named, std::string_view worker) {
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
    log_death(*s, psprintf("message %s", uuid_text(m->id)), worker);
    MessageFailure failure{.failure_class = is_killer(*s, *m) ? core::FailureClass::non_retryable
                                                              : core::FailureClass::retryable,
                           .error = death_error};
    if (named.is_fallback)
        fail_fallback(*s, *m, failure, now);
    else
        fail_message(*s, *m, failure, now);
    return true;
}

bool charge_batch(const NamedBatch &batch, std::string_view worker) {
    const TimestampTz now = pg::clock_now();
    if (!hold_settings(batch.subscription_id, false))
        return false;
    const Subscription *s = find_subscription(batch.subscription_id);
    if (s == nullptr)
        return true;
    size_t count = 0;
    for (int16 partition = 0; partition < log_partitions; ++partition) {
        const NamedBatch::Part &part = batch.parts[static_cast<size_t>(partition)];
        if (!part.is_used)
            continue;
        std::optional<Position> position = lock_position(s->id, partition, false);
        if (!position)
            return false;
        // It began further on where others were moved aside before, in the turn that was lost.
        if (part.from < position->at || !is_ticked(part.until))
            continue;
        suspect_due(*s, partition, batch_error, now);
        std::span<Message> messages =
            read_log_again(s->filter, partition, position->at, part.until).messages;
        auto *fates = static_cast<LogFate *>(palloc(sizeof(LogFate) * (messages.size() + 1)));
        decide_fates(*s, messages, now, {fates, messages.size()});
        for (size_t i = 0; i < messages.size(); ++i) {
            if (fates[i] == LogFate::deliver)
                suspect(*s, messages[i], batch_error, now);
            else if (fates[i] != LogFate::settled)
                move_aside(*s, messages[i], fates[i], now);
        }
        count += messages.size();
        if (part.until != position->at)
            move_position(s->id, *position, part.until, now);
    }
    log_death(*s, psprintf("a batch of %zu messages of the log", count), worker);
    return true;
}

} // namespace stacksaga
