// expire_dedupe: removes keys and messages whose retention is over, a batch at a time.
#include "pg/citus/two_phase.hpp"
#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/deferred_rows.hpp"
#include "src/common/kept_rows.hpp"
#include "src/common/probe.hpp"
#include "src/dedupe/dedupe.hpp"

namespace stacksaga {

namespace {

constexpr int32 rows_max = 100000;

// sweep_at is when to check a key, written once when it begins, so that finishing it touches no
// index. A key that may not be removed yet is checked again when it may, or a retention later if it
// is still in progress. Keys that another session is writing are left for another time.
//
// Rows are found again by their places. In a partitioned table a place is one of a partition: a
// statement removes rows of one partition, and returns how many it has found, how many of these in
// that partition, and how many it has removed.
#define KEY_TEXT "scope || ' ' || key"
#define KEY_IS_NOT_KEPT IS_NOT_KEPT("idempotency_key", KEY_TEXT, "$2")
#define MESSAGE_TEXT "consumer || ' ' || message_id"
#define MESSAGE_IS_NOT_KEPT IS_NOT_KEPT("accepted_message", MESSAGE_TEXT, "$2")
enum class SweepColumn : uint8_t { found, here, gone };
constinit pg::Select<SweepColumn> sweep_keys{
    "WITH due AS MATERIALIZED ("
    "       SELECT tableoid AS part, ctid AS place, completed_at + retention <= $2 AS expired"
    "         FROM stacksaga.idempotency_key"
    "        WHERE sweep_at > $1 AND sweep_at <= $2" KEY_IS_NOT_KEPT
    "        ORDER BY sweep_at LIMIT $3 FOR UPDATE SKIP LOCKED),"
    " here AS MATERIALIZED (SELECT * FROM due WHERE part = (SELECT part FROM due LIMIT 1)),"
    " kept AS ("
    "       UPDATE stacksaga.idempotency_key"
    "          SET sweep_at = coalesce(completed_at, $2) + retention"
    "        WHERE tableoid = (SELECT part FROM here LIMIT 1)"
    "          AND ctid = ANY (ARRAY(SELECT place FROM here WHERE expired IS NOT TRUE))),"
    " gone AS ("
    "       DELETE FROM stacksaga.idempotency_key"
    "        WHERE tableoid = (SELECT part FROM here LIMIT 1)"
    "          AND ctid = ANY (ARRAY(SELECT place FROM here WHERE expired)) RETURNING 1)"
    " SELECT (SELECT count(*) FROM due) AS found, (SELECT count(*) FROM here) AS here,"
    "        (SELECT count(*) FROM gone) AS gone"};
constinit pg::Select<SweepColumn> sweep_messages{
    "WITH due AS MATERIALIZED ("
    "       SELECT tableoid AS part, ctid AS place FROM stacksaga.accepted_message"
    "        WHERE expires_at > $1 AND expires_at <= $2" MESSAGE_IS_NOT_KEPT
    "        ORDER BY expires_at LIMIT $3 FOR UPDATE SKIP LOCKED),"
    " here AS MATERIALIZED (SELECT * FROM due WHERE part = (SELECT part FROM due LIMIT 1)),"
    " gone AS ("
    "       DELETE FROM stacksaga.accepted_message"
    "        WHERE tableoid = (SELECT part FROM here LIMIT 1)"
    "          AND ctid = ANY (ARRAY(SELECT place FROM here)) RETURNING 1)"
    " SELECT (SELECT count(*) FROM due) AS found, (SELECT count(*) FROM here) AS here,"
    "        (SELECT count(*) FROM gone) AS gone"};

constinit pg::Statement first_key{"SELECT " KEY_TEXT " FROM stacksaga.idempotency_key"
                                  " WHERE sweep_at > $1 AND sweep_at <= $2" KEY_IS_NOT_KEPT
                                  " ORDER BY sweep_at LIMIT 1 FOR UPDATE SKIP LOCKED"};
constinit pg::Statement first_message{
    "SELECT " MESSAGE_TEXT " FROM stacksaga.accepted_message"
    " WHERE expires_at > $1 AND expires_at <= $2" MESSAGE_IS_NOT_KEPT
    " ORDER BY expires_at LIMIT 1 FOR UPDATE SKIP LOCKED"};

// The same where Citus has distributed the tables: places mean nothing there, and a lock is of one
// shard. All that is due until an instant goes at once, in each shard by its index; the instant
// bounds how much that is. A statement waits for a session that writes one of these keys.
enum class DueColumn : uint8_t { found, until };
enum class FirstColumn : uint8_t { at, row_key };
struct Distributed {
    const char *relation;
    pg::Select<DueColumn> due;
    std::optional<pg::Statement> postpone; ///< what is not to be removed yet
    pg::Statement remove;
    pg::Select<FirstColumn> first; ///< of those to be removed
    pg::Statement remove_one;
};
#define NOT_KEPT(KEY) IS_NOT_KEPT_OF("$3", KEY)
// Citus wants functions of columns to be immutable, so an interval is added in a zone without
// changes of clocks.
#define EXPIRES_AT "((completed_at AT TIME ZONE 'UTC') + retention) AT TIME ZONE 'UTC'"
#define UNTIL(INSTANT, KEY) " WHERE " INSTANT " <= $1" NOT_KEPT(KEY)
#define DUE(TABLE, INSTANT, KEY)                                                                   \
    "SELECT count(*) AS found, max(at) AS until FROM (SELECT " INSTANT " AS at FROM " TABLE UNTIL( \
        INSTANT, KEY) " ORDER BY 1 LIMIT $2) AS due"
#define FIRST(TABLE, INSTANT, KEY, IS_EXPIRED)                                                     \
    "SELECT " INSTANT " AS at, " KEY " AS row_key FROM " TABLE UNTIL(INSTANT, KEY) IS_EXPIRED      \
        " ORDER BY 1 LIMIT 1"
constinit Distributed distributed_keys{
    .relation = "idempotency_key",
    .due = pg::Select<DueColumn>{DUE("stacksaga.idempotency_key", "sweep_at", KEY_TEXT)},
    .postpone = pg::Statement{"UPDATE stacksaga.idempotency_key"
                              "   SET sweep_at = coalesce(" EXPIRES_AT ","
                              "       (($2::timestamptz AT TIME ZONE 'UTC') + retention)"
                              "       AT TIME ZONE 'UTC')" UNTIL(
                                  "sweep_at", KEY_TEXT) " AND (completed_at IS NULL OR " EXPIRES_AT
                                                        " > $2)"},
    .remove = pg::Statement{"DELETE FROM stacksaga.idempotency_key" UNTIL(
        "sweep_at", KEY_TEXT) " AND " EXPIRES_AT " <= $2"},
    .first = pg::Select<FirstColumn>{FIRST("stacksaga.idempotency_key", "sweep_at", KEY_TEXT,
                                           " AND " EXPIRES_AT " <= $2")},
    .remove_one = pg::Statement{"DELETE FROM stacksaga.idempotency_key"
                                " WHERE sweep_at = $1 AND " KEY_TEXT " = $2"}};
constinit Distributed distributed_messages{
    .relation = "accepted_message",
    .due = pg::Select<DueColumn>{DUE("stacksaga.accepted_message", "expires_at", MESSAGE_TEXT)},
    .postpone = std::nullopt,
    .remove = pg::Statement{"DELETE FROM stacksaga.accepted_message" UNTIL(
        "expires_at", MESSAGE_TEXT) " AND $2::timestamptz IS NOT NULL"},
    .first = pg::Select<FirstColumn>{FIRST("stacksaga.accepted_message", "expires_at", MESSAGE_TEXT,
                                           " AND $2::timestamptz IS NOT NULL")},
    .remove_one = pg::Statement{"DELETE FROM stacksaga.accepted_message"
                                " WHERE expires_at = $1 AND " MESSAGE_TEXT " = $2"}};

constinit ProbeMemory keys_probe{}, messages_probe{};

/// Removes at most `limit` expired rows, partition by partition.
Removed sweep(pg::Select<SweepColumn> &statement, ProbeMemory &probe, TimestampTz now,
              int64 limit) {
    const TimestampTz from = probe.begin(now);
    int64 gone = 0, left = limit;
    bool is_whole = false, is_over = false;
    while (!is_over) {
        const auto rows = statement.run(pg::param_time(from), pg::param_time(now), pg::param(left));
        const int64 found = rows.int8(0, SweepColumn::found),
                    done = rows.int8(0, SweepColumn::here);
        gone += rows.int8(0, SweepColumn::gone);
        is_whole = found < left;
        is_over = done == found;
        left -= done;
    }
    fire_constraints(); // before what no rollback undoes
    probe.end(now);
    probe.settle(now, is_whole);
    return {.found = limit - left, .rows = gone};
}

/// The same, without those that cannot be removed.
int64 sweep_all(const char *relation, pg::Select<SweepColumn> &statement, pg::Statement &first,
                ProbeMemory &probe, TimestampTz now, int64 limit) {
    return remove_passing_over(
        relation, now, limit, [&](int64 wanted) { return sweep(statement, probe, now, wanted); },
        [&]() -> std::optional<std::string_view> {
            const pg::Rows rows = first.run(pg::param_time(probe.begin(now)), pg::param_time(now));
            return rows.empty() ? std::nullopt : std::optional{rows.text(0)};
        });
}

/// All that is due until the instant of the row that is the last of those wanted; one row alone,
/// which is `tried`.
Removed remove_due(Distributed &d, TimestampTz now, int64 wanted,
                   std::optional<std::string_view> &tried) {
    const pg::Param instant = pg::param_time(now), kept = kept_keys(d.relation, now);
    tried.reset();
    if (wanted == 1) {
        const auto rows = d.first.run(instant, instant, kept);
        if (rows.empty())
            return {};
        const std::string_view key = rows.text(0, FirstColumn::row_key);
        tried = {pnstrdup(key.data(), key.size()), key.size()}; // outlives what is undone
        const auto gone =
            d.remove_one.touch(pg::param_time(rows.time(0, FirstColumn::at)), pg::param(key));
        return {.found = 1, .rows = static_cast<int64>(gone)};
    }
    const auto due = d.due.run(instant, pg::param(wanted), kept);
    const int64 found = due.int8(0, DueColumn::found);
    if (found == 0)
        return {};
    const pg::Param until = pg::param_time(due.time(0, DueColumn::until));
    const auto gone = static_cast<int64>(d.remove.touch(until, instant, kept));
    if (d.postpone)
        static_cast<void>(d.postpone->touch(until, instant, kept));
    return {.found = found, .rows = gone};
}

int64 expire_distributed(Distributed &d, TimestampTz now, int64 limit) {
    std::optional<std::string_view> tried;
    return remove_passing_over(
        d.relation, now, limit, [&](int64 wanted) { return remove_due(d, now, wanted, tried); },
        [&] { return tried; });
}

int64 expire_keys(TimestampTz now, int64 limit) {
    const int64 gone = sweep_all("idempotency_key", sweep_keys, first_key, keys_probe, now, limit);
    CRASH_POINT("key: expired ones removed");
    return gone;
}

int64 expire_messages(TimestampTz now, int64 limit) {
    return sweep_all("accepted_message", sweep_messages, first_message, messages_probe, now, limit);
}

} // namespace

int64 remove_expired_keys(int64 limit) {
    const TimestampTz now = pg::clock_now();
    const bool is_distributed = pg::is_on_citus();
    const int64 keys =
        is_distributed ? expire_distributed(distributed_keys, now, limit) : expire_keys(now, limit);
    if (keys >= limit)
        return keys;
    return keys + (is_distributed ? expire_distributed(distributed_messages, now, limit - keys)
                                  : expire_messages(now, limit - keys));
}

// expire_dedupe(max_rows integer) -> bigint
STACKSAGA_FUNCTION(expire_dedupe) {
    int32 limit = pg::Arguments(fcinfo).required_int4(0, "max_rows");
    if (limit < 1 || limit > rows_max)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"max_rows\" is out of range"),
                        errdetail("The value is %d.", limit), errhint("Use 1 to %d.", rows_max)));
    require_writable("expire_dedupe()");
    write_deferred_rows();
    PG_RETURN_INT64(pg::with_spi([&] { return remove_expired_keys(limit); }));
}

} // namespace stacksaga
