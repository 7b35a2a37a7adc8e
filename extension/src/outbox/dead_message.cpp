// What operators do about dead messages, and how far a subscription lags.
#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/function.hpp"
#include "pg/query.hpp"
#include "pg/result.hpp"
#include "pg/scope.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/common/wake.hpp"
#include "src/outbox/delivery_retry.hpp"
#include "src/outbox/position.hpp"

namespace stacksaga {

namespace {

// The condition on discarded_at is written so that the index of what is not discarded, which knows
// nothing of ids, does not match it.
constinit pg::Statement find_dead{
    "SELECT token::bigint, tick, number, partition, key IS NOT NULL FROM stacksaga.dead_message"
    " WHERE subscription_id = $1 AND message_id = $2"
    "   AND coalesce(discarded_at, 'infinity') = 'infinity'"};
constinit pg::Statement revive{
    "WITH dead AS (DELETE FROM stacksaga.dead_message"
    "   WHERE subscription_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "     AND tick = $3 AND number = $4 AND discarded_at IS NULL RETURNING *)"
    " INSERT INTO stacksaga.message_retry (subscription_id, token, number, tick, partition, attempt,"
    "       state, due_at, failed_since, published_at, failed_in, message_id, topic, key, type,"
    "       payload, headers, last_error)"
    " SELECT subscription_id, token, number, tick, partition, 0, $5, $6, since, published_at,"
    "        failed_in, message_id, topic, key, type, payload, headers, last_error FROM dead"};
constinit pg::Statement discard{
    "UPDATE stacksaga.dead_message"
    "   SET discarded_at = $5, discarded_by = $6::name, discard_reason = $7"
    " WHERE subscription_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND tick = $3 AND number = $4 AND discarded_at IS NULL"};
constinit pg::Statement oldest_retry{
    "SELECT count(*), min(published_at) FROM stacksaga.message_retry WHERE subscription_id = $1"};

// Retries and dead messages that no position has passed: those of batches that are out.
constinit pg::Statement settled_ahead{
    "SELECT number FROM stacksaga.message_retry"
    " WHERE subscription_id = $1 AND partition = $2 AND tick > $3"
    " UNION ALL"
    " SELECT number FROM stacksaga.dead_message"
    "  WHERE subscription_id = $1 AND partition = $2 AND tick > $3"
    " ORDER BY number"};

// Messages for other subscriptions lie before the first one of this: somewhat more than maintenance
// and reading, which both move the position over them, leave there.
constexpr int32 unread_room = 64;
constexpr int unread_steps = 32;

struct DeadMessage {
    const Subscription *subscription;
    core::Token token = core::Token::from_int64(0);
    int64 tick;
    int64 number;
    bool has_key;
};

/// The message, with its partition locked.
DeadMessage lock_dead(std::string_view name, const pg_uuid_t &id) {
    const Subscription *held = nullptr;
    while (held == nullptr) // it may be dropped, and created again, while we wait
        held = hold_subscription(find_subscription(name).id, true);
    const Subscription &s = *held;
    pg::Rows rows = find_dead.run(pg::param(s.id), pg::param(id));
    if (!rows.empty()) {
        lock_position(s.id, rows.int2(0, 3), true);
        rows = find_dead.run(pg::param(s.id), pg::param(id));
    }
    if (rows.empty())
        ereport(ERROR,
                (errcode(pg::sg404), errmsg("message %s is not dead", uuid_text(id)),
                 errdetail("Subscription \"%s\" has no dead message with this id.", clip(s.name)),
                 errhint("Look at the view stacksaga.dead_messages.")));
    return {.subscription = &s,
            .token = core::Token::from_int64(rows.int8(0, 0)),
            .tick = rows.int8(0, 1),
            .number = rows.int8(0, 2),
            .has_key = rows.boolean(0, 4)};
}

void record(std::string_view action, const Subscription &s, const pg_uuid_t &id,
            std::optional<std::string_view> reason = std::nullopt) {
    const char *kind = psprintf("message %s of subscription", uuid_text(id));
    record_action({.action = action, .object = object_text(kind, s.name), .reason = reason});
}

/// Wakes workers, where they have something to do: services fetch their messages themselves.
void wake_for(const Subscription &s) {
    if (s.handler || s.fallback)
        wake_workers_at_commit();
}

void redrive(std::string_view name, const pg_uuid_t &id) {
    const DeadMessage m = lock_dead(name, id);
    core::MessageState state = next_state(core::MessageState::dead, core::MessageEvent::redrive);
    if (m.has_key && m.subscription->stop_on_first_failure &&
        is_behind_another(*m.subscription, m.token, {.tick = m.tick, .number = m.number}))
        state = next_state(state, core::MessageEvent::hold);
    revive.run(pg::param(m.subscription->id), pg::param(m.token.value()), pg::param(m.tick),
               pg::param(m.number), pg::param(core::name_of(state)),
               pg::param_time(core::is_held(state) ? DT_NOEND : pg::clock_now()));
    CRASH_POINT("dead: redriven");
    wake_for(*m.subscription);
    record("redrive", *m.subscription, id);
}

void discard_message(std::string_view name, const pg_uuid_t &id, std::string_view reason) {
    const DeadMessage m = lock_dead(name, id);
    const TimestampTz now = pg::clock_now();
    discard.run(pg::param(m.subscription->id), pg::param(m.token.value()), pg::param(m.tick),
                pg::param(m.number), pg::param_time(now), pg::param(acting_role()),
                pg::param(reason));
    if (m.has_key)
        release_key(*m.subscription, m.token, now);
    CRASH_POINT("dead: discarded");
    wake_for(*m.subscription);
    record("discard", *m.subscription, id, reason);
}

/// Calls `read` with the position of each partition, which it does not lock. Where `read` returns
/// false, since the position has moved on and the log behind it was deleted, it is called again
/// with the newer one. False when the subscription has been dropped meanwhile.
template <class F> bool for_each_position(int32 subscription_id, F &&read) {
    for (int16 partition = 0; partition < log_partitions; ++partition) {
        std::optional<Position> p = read_position(subscription_id, partition);
        while (p && !read(*p)) {
            CHECK_FOR_INTERRUPTS();
            const int64 tick = p->at.tick;
            p = read_position(subscription_id, partition);
            if (p && p->at.tick == tick)
                elog(ERROR,
                     "subscription %d is at tick " INT64_FORMAT " of the outbox, which is gone",
                     subscription_id, tick);
        }
        if (!p)
            return false;
    }
    return true;
}

/// Adds the messages of the log that a position has before it; false when the log was deleted
/// there.
bool add_part(const Subscription &s, const Position &p, Backlog &total) {
    pg::Rows rows =
        settled_ahead.run(pg::param(s.id), pg::param(p.partition), pg::param(p.at.tick));
    auto *numbers = static_cast<int64 *>(palloc(sizeof(int64) * (rows.count() + 1)));
    for (uint64 i = 0; i < rows.count(); ++i)
        numbers[i] = rows.int8(i, 0);
    const std::optional<Backlog> part =
        count_backlog(s.filter, p.partition, p.at, {numbers, static_cast<size_t>(rows.count())});
    if (!part)
        return false;
    total.messages += part->messages;
    total.oldest = std::min(total.oldest, part->oldest);
    return true;
}

void add_backlog(int32 subscription_id, pg::ResultSet &result) {
    const Subscription *s = find_subscription(subscription_id);
    if (s == nullptr)
        return;
    pg::Rows retries = oldest_retry.run(pg::param(s->id));
    Backlog total{.messages = retries.int8(0, 0),
                  .oldest = retries.optional_time(0, 1).value_or(DT_NOEND)};
    if (!for_each_position(s->id, [&](const Position &p) { return add_part(*s, p, total); }))
        return;
    const double seconds =
        total.oldest == DT_NOEND
            ? 0
            : static_cast<double>(std::max<int64>(0, pg::clock_now() - total.oldest)) /
                  USECS_PER_SEC;
    result.add(pg::of(Int64GetDatum(total.messages)), pg::of(Float8GetDatum(seconds)));
}

/// When the first message of the log behind a position was published, if a bounded read finds one;
/// false when the log was deleted there.
bool find_unread(const Subscription &s, const Position &p, std::optional<TimestampTz> &since) {
    std::optional<LogPart> next = peek_log(s.filter, p.partition, p.at, unread_room);
    for (int step = 1; next && next->messages.empty() && next->more && step < unread_steps; ++step)
        next = peek_log(s.filter, p.partition, next->end, unread_room);
    if (next && !next->messages.empty())
        since = std::min(since.value_or(DT_NOEND), next->messages[0].published_at);
    return next.has_value();
}

/// When the first unread message of the log was published; nothing: all are read. Costs the same
/// however long the log is.
std::optional<TimestampTz> unread_since(int32 subscription_id) {
    const Subscription *s = find_subscription(subscription_id);
    if (s == nullptr)
        return std::nullopt;
    std::optional<TimestampTz> since;
    const bool is_there =
        for_each_position(s->id, [&](const Position &p) { return find_unread(*s, p, since); });
    return is_there ? since : std::nullopt;
}

} // namespace

// redrive_message(subscription, message_id) -> void
STACKSAGA_FUNCTION(redrive_message) {
    pg::Arguments arguments(fcinfo);
    const std::string_view name = arguments.required_text(0, "subscription");
    const pg_uuid_t id = arguments.required_uuid(1, "message_id");
    pg::with_spi([&] { redrive(name, id); });
    PG_RETURN_VOID();
}

// discard_message(subscription, message_id, reason) -> void
STACKSAGA_FUNCTION(discard_message) {
    pg::Arguments arguments(fcinfo);
    const std::string_view name = arguments.required_text(0, "subscription");
    const pg_uuid_t id = arguments.required_uuid(1, "message_id");
    const std::string_view reason = arguments.required_text(2, "reason");
    check_error_text(reason, "reason");
    pg::with_spi([&] { discard_message(name, id, reason); });
    PG_RETURN_VOID();
}

// outbox_unread_since(subscription_id) -> timestamptz
STACKSAGA_FUNCTION(outbox_unread_since) {
    const int32 id = pg::Arguments(fcinfo).required_int4(0, "subscription_id");
    const std::optional<TimestampTz> since = pg::with_spi([&] { return unread_since(id); });
    if (!since)
        PG_RETURN_NULL();
    PG_RETURN_TIMESTAMPTZ(*since);
}

// outbox_backlog(subscription_id) -> (messages bigint, seconds double precision)
STACKSAGA_FUNCTION(outbox_backlog) {
    const int32 id = pg::Arguments(fcinfo).required_int4(0, "subscription_id");
    pg::ResultSet result(fcinfo);
    pg::with_spi([&] { add_backlog(id, result); });
    return pg::ResultSet::finish();
}

} // namespace stacksaga
