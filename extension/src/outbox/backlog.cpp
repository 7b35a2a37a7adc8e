// How far a subscription lags.
#include "pg/clock.hpp"
#include "pg/function.hpp"
#include "pg/query.hpp"
#include "pg/result.hpp"
#include "pg/scope.hpp"
#include "src/outbox/position.hpp"
#include "src/outbox/subscription.hpp"

namespace stacksaga {

namespace {

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
