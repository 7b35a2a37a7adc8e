// How far a subscription lags.
#include "core/outbox/partition.hpp"
#include "core/outbox/snapshot_window.hpp"

#include "pg/clock.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/outbox/subscription/position.hpp"
#include "src/outbox/subscription/subscription.hpp"

namespace stacksaga {

namespace {

enum class RetryColumn : uint8_t { messages, oldest };
constinit pg::Select<RetryColumn> oldest_retry{
    "SELECT count(*) AS messages, min(published_at) AS oldest FROM stacksaga.message_retry WHERE subscription_id = $1"};

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

[[noreturn]] void raise_gone(int32 subscription_id, int64 tick) {
    elog(ERROR, "subscription %d is at tick " INT64_FORMAT " of the outbox, which is gone",
         subscription_id, tick);
}

/// Calls `read` with the position of each partition, which it does not lock. Where `read` returns
/// false, since the position has moved on and the log behind it was deleted, it is called again
/// with the newer one. False when the subscription has been dropped meanwhile.
template <class F> bool for_each_position(const Subscription &s, F &&read) {
    for (int16 partition = 0; partition < s.partitions; ++partition) {
        std::optional<Position> p = read_position(s.id, partition);
        while (p && !read(*p)) {
            CHECK_FOR_INTERRUPTS();
            const int64 tick = p->at.tick;
            p = read_position(s.id, partition);
            if (p && p->at.tick == tick)
                raise_gone(s.id, tick);
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
        numbers[i] = rows.int8(i);
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
    const auto retries = oldest_retry.run(pg::param(s->id));
    Backlog total{.messages = retries.int8(0, RetryColumn::messages),
                  .oldest = retries.optional_time(0, RetryColumn::oldest).value_or(DT_NOEND)};
    if (!for_each_position(*s, [&](const Position &p) { return add_part(*s, p, total); }))
        return;
    const double seconds =
        total.oldest == DT_NOEND
            ? 0
            : static_cast<double>(std::max<int64>(0, pg::clock_now() - total.oldest)) /
                  USECS_PER_SEC;
    result.add(pg::of(Int64GetDatum(total.messages)), pg::of(Float8GetDatum(seconds)));
}

/// How far the partitions that are read together have been read, from `first` on.
LogShare share_of(const Positions &positions, size_t first, size_t size) {
    auto *from = static_cast<core::LogPosition *>(palloc(sizeof(core::LogPosition) * size));
    for (size_t i = 0; i < size; ++i)
        from[i] = positions[first + i].at;
    return {.first = static_cast<int16>(first), .from = {from, size}};
}

/// When the first message of the log behind a share was published, if a bounded read finds one;
/// false when the log was deleted there.
bool find_unread(const Subscription &s, LoadedTicks &ticks, const LogShare &share,
                 std::optional<TimestampTz> &since) {
    auto *from =
        static_cast<core::LogPosition *>(palloc(sizeof(core::LogPosition) * share.from.size()));
    std::copy(share.from.begin(), share.from.end(), from);
    const LogShare rest{.first = share.first, .from = {from, share.from.size()}};
    std::optional<LogPart> next = read_log(s.filter, ticks, rest, unread_room);
    for (int step = 1; next && next->messages.empty() && next->more && step < unread_steps;
         ++step) {
        for (size_t i = 0; i < rest.from.size(); ++i)
            from[i] = std::max(from[i], next->end);
        next = read_log(s.filter, ticks, rest, unread_room);
    }
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
    const auto size = static_cast<size_t>(core::partitions_together(s->partitions));
    std::optional<Positions> positions = read_positions(s->id, s->partitions);
    std::optional<TimestampTz> since;
    LoadedTicks ticks;
    for (size_t first = 0; positions && first < positions->size(); first += size) {
        LogShare share = share_of(*positions, first, size);
        while (!find_unread(*s, ticks, share, since)) {
            CHECK_FOR_INTERRUPTS();
            const core::LogPosition before = share.begin();
            positions = read_positions(s->id, s->partitions);
            if (!positions)
                return std::nullopt;
            share = share_of(*positions, first, size);
            if (share.begin() == before)
                raise_gone(s->id, before.tick);
        }
    }
    // Where nobody reads and no worker runs, no tick sees what was published last.
    if (positions && !since)
        since = first_behind_ticks(s->filter, int64{unread_room} * unread_steps);
    return positions ? since : std::nullopt;
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
