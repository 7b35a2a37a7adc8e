#include "src/outbox/delivery/delivery_loss.hpp"

#include "core/outbox/batch_room.hpp"
#include "core/outbox/message_state.hpp"

#include "pg/crash_point.hpp"
#include "pg/statement/query.hpp"
#include "src/outbox/delivery/delivery_order.hpp"
#include "src/outbox/delivery/delivery_retry.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement doubt_given{
    "UPDATE stacksaga.message_retry SET in_doubt = true"
    " WHERE subscription_id + 0 = $1 AND partition + 0 = $2 AND batch_id = $3" // by the batch alone
    "   AND NOT in_doubt"};

/// The messages of the log that the batch was given in this partition, without those that failed
/// since and those behind them.
std::span<const Message> unanswered_in_log(const Subscription &s, const Position &p,
                                           TimestampTz now) {
    if (p.batch_size == 0)
        return {};
    const std::span<Message> messages =
        read_log_again(s.filter, p.partition, p.at, p.batch_end).messages;
    mark_in_doubt(p, messages);
    auto *dispositions =
        static_cast<Disposition *>(palloc(sizeof(Disposition) * (messages.size() + 1)));
    decide_dispositions(s, messages, now, {dispositions, messages.size()});
    size_t count = 0;
    for (size_t i = 0; i < messages.size(); ++i)
        if (dispositions[i] == Disposition::deliver)
            messages[count++] = messages[i];
    return messages.first(count);
}

/// The attempt is over. The message stays the first of its partition, so that it comes alone again.
void charge(const Subscription &s, const Message &m, TimestampTz now) {
    write_retry(s, m,
                {.state = next_state(m.state, core::MessageEvent::lose),
                 .due_at = std::min(m.published_at, now), // a clock may have been ahead
                 .attempt = m.attempt,
                 .failed_since = now,
                 .error = unanswered_error});
    CRASH_POINT("retry: failure written, later ones not held");
    if (s.stop_on_first_failure && m.key != 0)
        hold_behind(s, m);
}

} // namespace

void doubt_batch(const Subscription &s, Position &p) {
    if (p.batch_id == 0)
        return;
    if (p.batch_size > 0)
        p.lost_until = std::max(p.lost_until, p.batch_end);
    doubt_given.run(pg::param(s.id), pg::param(p.partition), pg::param(p.batch_id));
}

void end_lost_batch(const Subscription &s, Position &p, TimestampTz now) {
    if (p.batch_id == 0)
        return;
    doubt_batch(s, p);
    const std::span<const Message> retries = messages_given(s, p.partition, p.batch_id, false);
    const std::span<const Message> log = unanswered_in_log(s, p, now);
    const bool is_lost = !retries.empty() || !log.empty();
    if (is_lost)
        p.room = core::room_after_loss(p.batch_total);
    if (is_lost && core::is_charged_for_loss(p.batch_total)) {
        charge(s, log.empty() ? retries[0] : log[0], now);
        p.at = std::max(p.at, p.batch_end); // nothing else of the log was before it
    }
    p.batch_id = 0;
}

} // namespace stacksaga
