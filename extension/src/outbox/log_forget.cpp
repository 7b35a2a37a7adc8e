// Deletes rows that reading the log leaves behind, when vacuum can remove them.
//
// As long as a transaction with an old snapshot is open, a deleted row stays where it is. Each
// vacuum goes over it again, and so does each search for the first live row: their cost would grow
// for as long as the transaction lasts. A row that is not deleted costs neither. So a session
// deletes more rows only after no snapshot sees those that it deleted last.
#include "src/outbox/log_forget.hpp"

#include "pg/crash_point.hpp"
#include "pg/query.hpp"
#include "src/outbox/log_table.hpp"
#include "src/outbox/position.hpp"

namespace stacksaga {

namespace {

constexpr int64 ticks_max = 5000;    // deleted at once
constexpr int64 versions_max = 5000; // of each position
constexpr int64 others_max = 1000;   // batches, discarded messages

constinit pg::Statement forget_ticks{
    "DELETE FROM stacksaga.outbox_tick WHERE tick IN ("
    "  SELECT tick FROM stacksaga.outbox_tick WHERE tick < $1 ORDER BY tick LIMIT $2)"};
constinit pg::Statement list_subscriptions{
    "SELECT subscription_id, partitions FROM stacksaga.subscription"};
// The oldest ones, which have the smallest numbers.
constinit pg::Statement forget_batches{
    "DELETE FROM stacksaga.message_batch AS b"
    " WHERE b.batch_id IN ("
    "       SELECT o.batch_id FROM stacksaga.message_batch AS o ORDER BY o.batch_id LIMIT $2)"
    "   AND b.received_at < $1"
    "   AND NOT EXISTS ("
    "       SELECT FROM unnest(b.partitions) AS n(partition), LATERAL ("
    "              SELECT l.batch_id FROM stacksaga.subscription_position AS l"
    "               WHERE l.subscription_id = b.subscription_id AND l.partition = n.partition"
    "               ORDER BY l.version DESC LIMIT 1) AS latest"
    "        WHERE latest.batch_id = b.batch_id)"};
constinit pg::Statement forget_discarded{
    "WITH old AS ("
    "  SELECT subscription_id, token, tick, number FROM stacksaga.dead_message"
    "   WHERE discarded_at < $1 ORDER BY discarded_at LIMIT $2)"
    " DELETE FROM stacksaga.dead_message AS d USING old AS o"
    "  WHERE d.subscription_id = o.subscription_id AND d.token OPERATOR(stacksaga.=) o.token"
    "    AND d.tick = o.tick AND d.number = o.number"};

/// A round of deletions of this session, until no row was left to delete.
struct Sweep {
    FullTransactionId last; ///< the transaction that ended it; invalid: there was none
    bool goes_on;
};
constinit Sweep sweep{.last = {InvalidTransactionId}, .goes_on = false};

/// The id with its epoch, of a transaction that has begun.
FullTransactionId full(TransactionId xid) {
    const uint64 next = U64FromFullTransactionId(ReadNextFullTransactionId());
    return FullTransactionIdFromU64(next - static_cast<uint32>(next - xid));
}

bool is_out_of_sight(FullTransactionId xid) {
    Relation table = log_tables[0].open(AccessShareLock);
    const TransactionId horizon = GetOldestNonRemovableTransactionId(table);
    table_close(table, NoLock);
    return FullTransactionIdPrecedes(xid, full(horizon));
}

/// Whether there is more of that.
bool forget_versions() {
    bool more = false;
    pg::Rows rows = list_subscriptions.run();
    for (uint64 row = 0; row < rows.count(); ++row)
        for (int16 partition = 0; partition < rows.int4(row, 1); ++partition) {
            CHECK_FOR_INTERRUPTS();
            more = forget_positions(rows.int4(row, 0), partition, versions_max) || more;
        }
    return more;
}

} // namespace

bool forget_log(int64 least, TimestampTz since, bool in_any_case) {
    const bool is_first = !FullTransactionIdIsValid(sweep.last);
    if (!in_any_case && !is_first && !sweep.goes_on && !is_out_of_sight(sweep.last))
        return false;
    const bool more_versions = forget_versions();
    const uint64 ticks = forget_ticks.touch(pg::param(least), pg::param(ticks_max));
    const uint64 batches = forget_batches.touch(pg::param_time(since), pg::param(others_max));
    const uint64 discarded = forget_discarded.touch(pg::param_time(since), pg::param(others_max));
    CRASH_POINT("generation: old ticks removed");
    sweep.goes_on =
        more_versions || ticks == ticks_max || batches == others_max || discarded == others_max;
    // A transaction without an id has deleted nothing.
    if (const FullTransactionId own = GetTopFullTransactionIdIfAny(); FullTransactionIdIsValid(own))
        sweep.last = own;
    return sweep.goes_on;
}

} // namespace stacksaga
