#include "src/outbox/delivery_retry.hpp"

#include "pg/clock.hpp"
#include "pg/function.hpp"
#include "pg/lookup.hpp"
#include "pg/query.hpp"
#include "pg/random.hpp"
#include "src/common/limits.hpp"
#include "src/outbox/delivery_order.hpp"

namespace stacksaga {

namespace {

#define OF_MESSAGE                                                                                 \
    " WHERE subscription_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"         \
    "   AND tick = $3 AND number = $4"
#define ASIDE_COLUMNS                                                                              \
    "token::bigint, number, tick, partition, attempt, message_id, published_at, topic, key, type," \
    " payload, headers, state, last_error IS NOT NULL,"                                            \
    " CASE WHEN batch_id IS NULL THEN last_error END"
constinit pg::Statement select_due{"SELECT " ASIDE_COLUMNS " FROM stacksaga.message_retry"
                                   " WHERE subscription_id = $1 AND partition = $2 AND due_at <= $3"
                                   "   AND (state = 'fallback') = $5"
                                   " ORDER BY due_at, tick, number LIMIT $4"};
constinit pg::Statement select_one{"SELECT " ASIDE_COLUMNS
                                   " FROM stacksaga.message_retry" OF_MESSAGE};
constinit pg::Statement select_given{
    "SELECT " ASIDE_COLUMNS " FROM stacksaga.message_retry"
    " WHERE subscription_id + 0 = $1 AND partition + 0 = $2 AND batch_id = $3" // by the batch alone
    "   AND ($4 OR due_at < 'infinity')"
    " ORDER BY tick, number"};
constinit pg::Statement insert_aside{
    "INSERT INTO stacksaga.message_retry (subscription_id, token, number, tick, partition, attempt,"
    "       state, due_at, since, published_at, failed_in, message_id, topic, key, type, payload,"
    "       headers, last_error)"
    " VALUES ($1, $2::stacksaga.ring_token, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,"
    "         $15, $16, $17, $18)"
    " ON CONFLICT (subscription_id, token, tick, number) DO UPDATE"
    "   SET attempt = excluded.attempt, state = excluded.state, due_at = excluded.due_at,"
    "       since = CASE WHEN message_retry.attempt > 0 AND message_retry.last_error IS NOT NULL"
    "                    THEN message_retry.since ELSE excluded.since END,"
    "       batch_id = NULL, failed_in = excluded.failed_in, last_error = excluded.last_error"};
constinit pg::Statement insert_dead{
    "INSERT INTO stacksaga.dead_message (subscription_id, token, number, tick, partition, attempts,"
    "       since, dead_since, published_at, failed_in, message_id, topic, key, type, payload,"
    "       headers, last_error)"
    " SELECT $1, $2::stacksaga.ring_token, $3, $4, $5, $6,"
    "        coalesce((SELECT r.since FROM stacksaga.message_retry AS r"
    "                   WHERE r.subscription_id = $1 AND r.tick = $4 AND r.number = $3"
    "                     AND r.token OPERATOR(stacksaga.=) $2::stacksaga.ring_token), $7),"
    "        $7, $8, $9, $10, $11, $12, $13, $14, $15, $16"
    " ON CONFLICT DO NOTHING"};
constinit pg::Statement suspect_all_due{
    "UPDATE stacksaga.message_retry"
    "   SET state = CASE state WHEN 'delayed' THEN 'ready' ELSE state END, last_error = $4"
    " WHERE subscription_id = $1 AND partition = $2 AND due_at <= $3 AND last_error IS NULL"};
constinit pg::Statement delete_aside{"DELETE FROM stacksaga.message_retry" OF_MESSAGE};
// What waited is due since it was moved aside, and so before a delayed message behind it in its key.
constinit pg::Statement release_all{
    "UPDATE stacksaga.message_retry"
    "   SET state = CASE state WHEN 'fallback' THEN state ELSE 'ready' END, due_at = since"
    " WHERE subscription_id = $1 AND state IN ('waiting', 'fallback') AND due_at = 'infinity'"};
// Of what is behind the first message that blocks its key.
constinit pg::Statement hold_all{
    "WITH blocking AS ("
    "  SELECT token::bigint AS token, tick, number FROM stacksaga.message_retry"
    "   WHERE subscription_id = $1 AND key IS NOT NULL AND state <> 'delayed'"
    "   UNION ALL"
    "  SELECT token::bigint, tick, number FROM stacksaga.dead_message"
    "   WHERE subscription_id = $1 AND key IS NOT NULL AND discarded_at IS NULL),"
    " first AS ("
    "  SELECT DISTINCT ON (token) token, tick, number FROM blocking ORDER BY token, tick, number)"
    " UPDATE stacksaga.message_retry AS r"
    "    SET state = CASE r.state WHEN 'fallback' THEN r.state ELSE 'waiting' END,"
    "        due_at = 'infinity', batch_id = NULL"
    "   FROM first AS f"
    "  WHERE r.subscription_id = $1 AND r.token::bigint = f.token AND r.key IS NOT NULL"
    "    AND (r.tick, r.number) > (f.tick, f.number)"
    "    AND r.state IN ('failed', 'ready', 'fallback')"};
// A message that was handed out is like any other, however it came here: should its batch be lost
// it blocks its key, and waits in it.
constinit pg::Statement give_to_consumer{
    "UPDATE stacksaga.message_retry SET state = 'ready', attempt = $5, batch_id = nullif($6, 0)" OF_MESSAGE};

pg::Param text_param(Datum value) {
    return pg::param_datum(TEXTOID, value, value == 0);
}
pg::Param jsonb_param(Datum value) {
    return pg::param_datum(JSONBOID, value, value == 0);
}
pg::Param batch_param(int64 batch_id) {
    return batch_id == 0 ? pg::param_null(INT8OID) : pg::param(batch_id);
}

Message message_of_row(const pg::Rows &rows, uint64 row) {
    auto or_zero = [&](int column) {
        bool isnull;
        Datum value = rows.datum(row, column, &isnull);
        return isnull ? Datum{0} : value;
    };
    Message m{};
    m.token = core::Token::from_int64(rows.int8(row, 0));
    m.number = rows.int8(row, 1);
    m.tick = rows.int8(row, 2);
    m.partition = rows.int2(row, 3);
    m.attempt = rows.int4(row, 4) + 1;
    m.is_aside = true;
    m.id = rows.uuid(row, 5);
    m.published_at = rows.time(row, 6);
    m.topic = rows.value(row, 7);
    m.key = or_zero(8);
    m.type = or_zero(9);
    m.payload = or_zero(10);
    m.headers = rows.value(row, 11);
    m.is_suspect = rows.boolean(row, 13);
    m.last_error = or_zero(14);
    return m;
}

// By the primary key and not by a query: its plan would hash all that is aside, or look through it.
using PlaceKey = std::array<pg::KeyColumn, 4>;

PlaceKey place_key(const Subscription &s, const Message &m) {
    return {pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(s.id)},
            pg::KeyColumn{F_INT8EQ, InvalidOid, Int64GetDatum(m.token.value())},
            pg::KeyColumn{F_INT8EQ, InvalidOid, Int64GetDatum(m.tick)},
            pg::KeyColumn{F_INT8EQ, InvalidOid, Int64GetDatum(m.number)}};
}

/// Whether something of the message's partition is aside, or dead and in somebody's way, or has
/// died since that message.
bool may_be_settled(const Subscription &s, const Message &m) {
    const std::array<pg::KeyColumn, 3> from_tick{
        pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(s.id)},
        pg::KeyColumn{F_INT2EQ, InvalidOid, Int16GetDatum(m.partition)},
        pg::KeyColumn{F_INT8GE, InvalidOid, Int64GetDatum(m.tick), BTGreaterEqualStrategyNumber}};
    const auto of_partition = std::span<const pg::KeyColumn>{from_tick}.first(2);
    CommandCounterIncrement(); // what this transaction has written itself counts as well
    return pg::has_row("message_retry", "message_retry_due", of_partition) ||
           pg::has_row("dead_message", "dead_message_open", of_partition) ||
           pg::has_row("dead_message", "dead_message_place", from_tick);
}

/// Whether anything is due in a partition.
bool has_due(const Subscription &s, int16 partition, TimestampTz now) {
    const std::array<pg::KeyColumn, 3> key{
        pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(s.id)},
        pg::KeyColumn{F_INT2EQ, InvalidOid, Int16GetDatum(partition)},
        pg::KeyColumn{F_TIMESTAMPTZ_LE, InvalidOid, TimestampTzGetDatum(now),
                      BTLessEqualStrategyNumber}};
    CommandCounterIncrement();
    return pg::has_row("message_retry", "message_retry_due", key);
}

/// Whether the message is aside already, or was and is dead.
bool is_settled(const Subscription &s, const Message &m) {
    const PlaceKey key = place_key(s, m);
    return pg::has_row("message_retry", key) || pg::has_row("dead_message", key);
}

/// Holds those that would be delivered although something before them blocks their key.
void hold_blocked(const Subscription &s, std::span<const Message> messages,
                  std::span<LogFate> fates) {
    std::optional<KeyPlace> blocker;
    const Message *last = nullptr; // the message that it was looked up for
    for (size_t i = 0; i < messages.size(); ++i) {
        const Message &m = messages[i];
        if (fates[i] != LogFate::deliver || m.key == 0)
            continue;
        if (last == nullptr || last->token != m.token)
            blocker = first_blocker(s, m.token);
        last = &m;
        if (blocker && *blocker < KeyPlace{m.tick, m.number})
            fates[i] = LogFate::hold;
    }
}

bool is_blocking(const Subscription &s, const Message &m) {
    return s.stop_on_first_failure && m.key != 0;
}

void write_aside(const Subscription &s, const Message &m, std::string_view state, int32 attempt,
                 TimestampTz due_at, TimestampTz now, int64 batch_id,
                 std::optional<std::string_view> error) {
    insert_aside.run(pg::param(s.id), pg::param(m.token.value()), pg::param(m.number),
                     pg::param(m.tick), pg::param(m.partition), pg::param(attempt),
                     pg::param(state), pg::param_time(due_at), pg::param_time(now),
                     pg::param_time(m.published_at), batch_param(batch_id), pg::param(m.id),
                     text_param(m.topic), text_param(m.key), text_param(m.type),
                     jsonb_param(m.payload), jsonb_param(m.headers), pg::param(error));
}

/// What comes behind a message that failed or waits does, too.
void hold_behind(const Subscription &s, const Message &m) {
    hold_active(s, m.token, {.tick = m.tick, .number = m.number});
}

void bury(const Subscription &s, const Message &m, const MessageFailure &failure, TimestampTz now) {
    insert_dead.run(pg::param(s.id), pg::param(m.token.value()), pg::param(m.number),
                    pg::param(m.tick), pg::param(m.partition), pg::param(m.attempt),
                    pg::param_time(now), pg::param_time(m.published_at),
                    batch_param(failure.batch_id), pg::param(m.id), text_param(m.topic),
                    text_param(m.key), text_param(m.type), jsonb_param(m.payload),
                    jsonb_param(m.headers), pg::param(failure.error));
    delete_aside.run(pg::param(s.id), pg::param(m.token.value()), pg::param(m.tick),
                     pg::param(m.number));
}

std::span<Message> select_due_messages(const Subscription &s, int16 partition, int32 limit,
                                       TimestampTz now, bool fallbacks) {
    pg::Rows rows = select_due.run(pg::param(s.id), pg::param(partition), pg::param_time(now),
                                   pg::param(limit), pg::param(fallbacks));
    auto *messages = static_cast<Message *>(palloc(sizeof(Message) * (rows.count() + 1)));
    for (uint64 row = 0; row < rows.count(); ++row)
        messages[row] = message_of_row(rows, row);
    std::sort(messages, messages + rows.count(), by_place);
    return {messages, static_cast<size_t>(rows.count())};
}

/// Gives up on a message that has had all its attempts: it was lost with its batch, or failed while
/// the policy allowed more.
bool give_up(const Subscription &s, Message m, TimestampTz now) {
    --m.attempt;
    if (m.attempt == 0 || core::may_retry(m.attempt, s.retry.policy))
        return false;
    fail_message(s, m,
                 {.failure_class = core::FailureClass::non_retryable,
                  .error = m.last_error != 0
                               ? pg::view_of_text(m.last_error)
                               : "its consumers have not answered before their leases ran out"},
                 now);
    return true;
}

/// Returns whether all of the messages, which are due and in the order of their places, can be
/// delivered. One cannot that has had its attempts, nor one that is behind another of its key that
/// is not among them: it waits.
bool give_up_or_hold(const Subscription &s, std::span<const Message> messages, TimestampTz now) {
    for (const Message &m : messages)
        if (give_up(s, m, now))
            return false; // what is behind it in its key is not due any more
    bool are_kept = true;
    std::optional<KeyPlace> first;
    const Message *last = nullptr; // the message that it was looked up for
    for (const Message &m : messages) {
        if (!is_blocking(s, m))
            continue;
        if (last == nullptr || last->token != m.token)
            first = first_blocker(s, m.token, messages);
        last = &m;
        if (!first || !(*first < KeyPlace{m.tick, m.number}))
            continue;
        hold(s, m.token, {.tick = m.tick, .number = m.number});
        are_kept = false;
    }
    return are_kept;
}

} // namespace

DueMessages due_messages(const Subscription &s, int16 partition, int32 limit, TimestampTz now) {
    DueMessages due{};
    while (has_due(s, partition, now)) {
        due.messages = select_due_messages(s, partition, limit, now, false);
        const bool are_kept = give_up_or_hold(s, due.messages, now);
        if (are_kept)
            return due;
        due.have_changed = true;
    }
    due.messages = {};
    return due;
}

bool has_due_fallback(const Subscription &s, int16 partition, TimestampTz now) {
    return has_due(s, partition, now) && !select_due_messages(s, partition, 1, now, true).empty();
}

std::span<Message> due_fallbacks(const Subscription &s, int16 partition, int32 limit,
                                 TimestampTz now) {
    std::span<Message> messages = select_due_messages(s, partition, limit, now, true);
    size_t count = 0;
    for (Message &m : messages) {
        if (is_blocking(s, m) && is_behind_another(s, m.token, m.tick, m.number)) {
            hold(s, m.token, {.tick = m.tick, .number = m.number});
            continue;
        }
        --m.attempt; // it is not another attempt at the message
        messages[count++] = m;
    }
    return messages.first(count);
}

std::optional<Message> find_aside(const Subscription &s, core::Token token, int64 tick,
                                  int64 number) {
    pg::Rows rows = select_one.run(pg::param(s.id), pg::param(token.value()), pg::param(tick),
                                   pg::param(number));
    if (rows.empty())
        return std::nullopt;
    return message_of_row(rows, 0);
}

std::span<Message> messages_given(const Subscription &s, int16 partition, int64 batch_id,
                                  bool with_held) {
    pg::Rows rows = select_given.run(pg::param(s.id), pg::param(partition), pg::param(batch_id),
                                     pg::param(with_held));
    auto *messages = static_cast<Message *>(palloc(sizeof(Message) * (rows.count() + 1)));
    for (uint64 row = 0; row < rows.count(); ++row) {
        messages[row] = message_of_row(rows, row);
        --messages[row].attempt; // which was raised when it was given
    }
    return {messages, static_cast<size_t>(rows.count())};
}

void decide_fates(const Subscription &s, std::span<const Message> messages, TimestampTz now,
                  std::span<LogFate> fates) {
    for (size_t i = 0; i < messages.size(); ++i)
        fates[i] = messages[i].deliver_at && *messages[i].deliver_at > now ? LogFate::delay
                                                                           : LogFate::deliver;
    if (messages.empty() || !may_be_settled(s, messages[0]))
        return;
    for (size_t i = 0; i < messages.size(); ++i)
        if (is_settled(s, messages[i]))
            fates[i] = LogFate::settled;
    if (s.stop_on_first_failure)
        hold_blocked(s, messages, fates);
}

void move_aside(const Subscription &s, const Message &m, LogFate fate, TimestampTz now) {
    if (fate == LogFate::delay) {
        write_aside(s, m, "delayed", 0, m.deliver_at.value_or(now), now, 0, std::nullopt);
        return;
    }
    write_aside(s, m, "waiting", 0, DT_NOEND, now, 0, std::nullopt);
    // Of a batch that was lost something behind it may be aside, and ready.
    hold_behind(s, m);
}

void move_unread(const Subscription &s, const Message &m, TimestampTz now) {
    constexpr std::string_view reason = "it was not read before stacksaga.outbox_retention passed";
    if (!is_blocking(s, m)) {
        write_aside(s, m, "failed", 0, now, now, 0, reason);
        return;
    }
    write_aside(s, m, "waiting", 0, DT_NOEND, now, 0, reason);
    hold_behind(s, m);
}

void suspect(const Subscription &s, const Message &m, std::string_view error, TimestampTz now) {
    write_aside(s, m, is_blocking(s, m) ? "ready" : "failed", 0, now, now, 0, error);
}

void suspect_due(const Subscription &s, int16 partition, std::string_view error, TimestampTz now) {
    suspect_all_due.run(pg::param(s.id), pg::param(partition), pg::param_time(now),
                        pg::param(error));
}

void note_delivery(const Subscription &s, std::span<const Message> messages, int64 batch_id) {
    for (const Message &m : messages)
        if (m.is_aside)
            give_to_consumer.run(pg::param(s.id), pg::param(m.token.value()), pg::param(m.tick),
                                 pg::param(m.number), pg::param(m.attempt), pg::param(batch_id));
}

void apply_stopping(int32 subscription_id, bool stops) {
    if (stops)
        hold_all.run(pg::param(subscription_id));
    else
        release_all.run(pg::param(subscription_id));
}

void finish_aside(const Subscription &s, const Message &m, TimestampTz now) {
    delete_aside.run(pg::param(s.id), pg::param(m.token.value()), pg::param(m.tick),
                     pg::param(m.number));
    if (m.key != 0)
        release_key(s, m.token, now);
}

void fail_message(const Subscription &s, const Message &m, const MessageFailure &failure,
                  TimestampTz now) {
    const core::RetryPolicy &policy = s.retry.policy;
    if (failure.failure_class != core::FailureClass::non_retryable &&
        core::may_retry(m.attempt, policy)) {
        const int64 delay = failure.retry_after_us.value_or(
            core::delay_before(static_cast<int64>(m.attempt) + 1, policy, pg::random_fraction()));
        write_aside(s, m, "failed", m.attempt, pg::time_plus(now, delay), now, failure.batch_id,
                    failure.error);
    } else if (s.fallback) {
        write_aside(s, m, "fallback", m.attempt, now, now, failure.batch_id, failure.error);
    } else {
        bury(s, m, failure, now);
    }
    if (!is_blocking(s, m))
        return;
    hold_behind_failure(s, m.token, {.tick = m.tick, .number = m.number});
    hold_behind(s, m);
}

void fail_fallback(const Subscription &s, const Message &m, const MessageFailure &failure,
                   TimestampTz now) {
    bury(s, m, failure, now);
}

} // namespace stacksaga
