// Deletes rows that reading the log leaves behind, when vacuum can remove them.
//
// As long as a transaction with an old snapshot is open, a deleted row stays where it is. Each
// vacuum goes over it again, and so does each search for the first live row: their cost would grow
// for as long as the transaction lasts. A row that is not deleted costs neither. So a session
// deletes more rows only after no snapshot sees those that it deleted last.
#include "src/outbox/log/log_forget.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/select.hpp"
#include "src/common/kept_rows.hpp"
#include "src/outbox/log/log_table.hpp"
#include "src/outbox/subscription/position.hpp"

namespace stacksaga {

namespace {

constexpr int64 ticks_max = 5000;    // deleted at once
constexpr int64 versions_max = 5000; // of each position
constexpr int64 others_max = 1000;   // batches, discarded messages

/// Rows of a table, oldest first: `remove` takes some of the first ones, `first` names the first.
struct Old {
    const char *table;
    pg::Statement remove;
    pg::Statement first;
};

#define OLD_TICKS                                                                                  \
    " FROM stacksaga.outbox_tick WHERE tick < $1" IS_NOT_KEPT(                                     \
        "outbox_tick", "tick::text", "$2") " ORDER BY outbox_tick.tick LIMIT "
constinit Old ticks{
    "outbox_tick",
    pg::Statement{"DELETE FROM stacksaga.outbox_tick WHERE tick IN (SELECT tick" OLD_TICKS "$3)"},
    pg::Statement{"SELECT tick::text" OLD_TICKS "1"}};
enum class SubscriptionColumn : uint8_t { subscription_id, partitions };
constinit pg::Select<SubscriptionColumn> list_subscriptions{
    "SELECT subscription_id, partitions FROM stacksaga.subscription"};
// The oldest ones, which have the smallest numbers.
#define OLD_BATCHES                                                                                      \
    "  FROM (SELECT o.* FROM stacksaga.message_batch AS o WHERE true" IS_NOT_KEPT(                       \
        "message_batch", "o.batch_id::text",                                                             \
        "$2") "         ORDER BY o.batch_id LIMIT 1000) AS b"                                            \
              " WHERE b.received_at < $1"                                                                \
              "   AND NOT EXISTS ("                                                                      \
              "       SELECT FROM unnest(b.partitions) AS n(partition), LATERAL ("                       \
              "              SELECT l.batch_id, l.released_batch"                                        \
              "                FROM stacksaga.subscription_position AS l"                                \
              "               WHERE l.subscription_id = b.subscription_id AND l.partition = n.partition" \
              "               ORDER BY l.version DESC LIMIT 1) AS latest"                                \
              "        WHERE b.batch_id IN (latest.batch_id, latest.released_batch))"                    \
              " ORDER BY b.batch_id LIMIT "
constinit Old batches{
    "message_batch",
    pg::Statement{
        "DELETE FROM stacksaga.message_batch WHERE batch_id IN (SELECT b.batch_id" OLD_BATCHES
        "$3)"},
    pg::Statement{"SELECT b.batch_id::text" OLD_BATCHES "1"}};
#define LOST_TEXT "o.batch_id::text || ' ' || o.partition::text"
#define OLD_LOST                                                                                   \
    " FROM (SELECT o.* FROM stacksaga.lost_batch AS o WHERE true" IS_NOT_KEPT(                     \
        "lost_batch", LOST_TEXT,                                                                   \
        "$2") " ORDER BY o.batch_id, o.partition LIMIT 1000) AS o WHERE o.received_at < $1"        \
              " ORDER BY o.batch_id, o.partition LIMIT "
constinit Old lost{"lost_batch",
                   pg::Statement{"WITH old AS (SELECT o.batch_id, o.partition" OLD_LOST "$3)"
                                 " DELETE FROM stacksaga.lost_batch AS d USING old AS o"
                                 "  WHERE d.batch_id = o.batch_id AND d.partition = o.partition"},
                   pg::Statement{"SELECT " LOST_TEXT OLD_LOST "1"}};
#define DISCARDED_TEXT "subscription_id::text || ' ' || tick::text || ' ' || number::text"
#define OLD_DISCARDED                                                                              \
    " FROM stacksaga.dead_message WHERE discarded_at < $1" IS_NOT_KEPT(                            \
        "dead_message", DISCARDED_TEXT, "$2") " ORDER BY discarded_at LIMIT "
constinit Old discarded{"dead_message",
                        pg::Statement{"WITH old AS ("
                                      "  SELECT subscription_id, token, tick, number" OLD_DISCARDED
                                      "$3)"
                                      " DELETE FROM stacksaga.dead_message AS d USING old AS o"
                                      "  WHERE d.subscription_id = o.subscription_id"
                                      "    AND d.token OPERATOR(stacksaga.=) o.token"
                                      "    AND d.tick = o.tick AND d.number = o.number"},
                        pg::Statement{"SELECT " DISCARDED_TEXT OLD_DISCARDED "1"}};

/// A round of deletions of this session, until no row was left to delete.
struct Sweep {
    FullTransactionId last; ///< the transaction that ended it; invalid: there was none
    bool goes_on;
};
constinit Sweep sweep{.last = {InvalidTransactionId}, .goes_on = false};

/// The id of a transaction that has begun, with its epoch; `next`: the next one that will begin.
constexpr uint64 with_epoch(uint64 next, TransactionId xid) {
    return next - static_cast<uint32>(next - xid);
}
static_assert(with_epoch(1000, 900) == 900);
static_assert(with_epoch(0x1'0000'0010, 0xffff'fff0) == 0xffff'fff0, "of the epoch before");
static_assert(with_epoch(0x5'0000'0010, 4) == 0x5'0000'0004, "of this one");
// A session that deleted something an epoch ago would be taken for one that will begin: no id of
// 32 bits tells the two apart.
static_assert(with_epoch(0x2'0000'0010, 8) > 0x1'0000'0009);

FullTransactionId full(TransactionId xid) {
    return FullTransactionIdFromU64(
        with_epoch(U64FromFullTransactionId(ReadNextFullTransactionId()), xid));
}

bool is_out_of_sight(FullTransactionId xid) {
    Relation table = log_tables[0].open(AccessShareLock);
    const TransactionId horizon = GetOldestNonRemovableTransactionId(table);
    table_close(table, NoLock);
    return FullTransactionIdPrecedes(xid, full(horizon));
}

/// Calls `forget`, which returns whether there is more, for each partition.
template <class F> bool each_partition(F &&forget) {
    bool more = false;
    const auto rows = list_subscriptions.run();
    for (uint64 row = 0; row < rows.count(); ++row)
        for (int16 partition = 0; partition < rows.int4(row, SubscriptionColumn::partitions);
             ++partition) {
            CHECK_FOR_INTERRUPTS();
            more = forget(rows.int4(row, SubscriptionColumn::subscription_id), partition) || more;
        }
    return more;
}

/// Whether there is more of that. All of it in one subtransaction, or where one of them cannot be
/// removed each partition by itself.
bool forget_versions(TimestampTz now) {
    bool more = false;
    const char *error = nullptr;
    if (attempt_removal(error, [&] {
            more = each_partition([&](int32 subscription_id, int16 partition) {
                return forget_positions(subscription_id, partition, versions_max, now);
            });
        }))
        return more;
    return each_partition([&](int32 subscription_id, int16 partition) {
        return forget_removable_positions(subscription_id, partition, versions_max, now);
    });
}

/// Whether there is more of that.
bool forget_old(Old &old, const pg::Param &until, TimestampTz now, int64 limit) {
    const auto remove = [&](int64 wanted) {
        const auto count =
            static_cast<int64>(old.remove.touch(until, pg::param_time(now), pg::param(wanted)));
        return Removed{.found = count, .rows = count};
    };
    const auto first = [&]() -> std::optional<std::string_view> {
        const pg::Rows rows = old.first.run(until, pg::param_time(now));
        return rows.empty() ? std::nullopt : std::optional{rows.text(0)};
    };
    return remove_passing_over(old.table, now, limit, remove, first) >= limit;
}

} // namespace

bool forget_log(int64 least, TimestampTz since, bool in_any_case) {
    const bool is_first = !FullTransactionIdIsValid(sweep.last);
    if (!in_any_case && !is_first && !sweep.goes_on && !is_out_of_sight(sweep.last))
        return false;
    const TimestampTz now = pg::clock_now();
    bool more = forget_versions(now);
    more = forget_old(ticks, pg::param(least), now, ticks_max) || more;
    more = forget_old(batches, pg::param_time(since), now, others_max) || more;
    more = forget_old(lost, pg::param_time(since), now, others_max) || more;
    more = forget_old(discarded, pg::param_time(since), now, others_max) || more;
    CRASH_POINT("generation: old ticks removed");
    sweep.goes_on = more;
    // A transaction without an id has deleted nothing.
    if (const FullTransactionId own = GetTopFullTransactionIdIfAny(); FullTransactionIdIsValid(own))
        sweep.last = own;
    return sweep.goes_on;
}

} // namespace stacksaga
