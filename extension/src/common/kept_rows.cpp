#include "src/common/kept_rows.hpp"

#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/statement/query.hpp"

namespace stacksaga {

namespace {

constexpr int64 retry_us = USECS_PER_HOUR;

constinit pg::Statement keep{
    "INSERT INTO stacksaga.kept_row AS k (relation, row_key, error, since, retry_at)"
    " VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT (relation, row_key) DO UPDATE SET error = excluded.error,"
    "       retry_at = excluded.retry_at"};
constinit pg::Statement find_any{"SELECT FROM stacksaga.kept_row WHERE relation = $1 LIMIT 1"};
constinit pg::Statement find_kept{"SELECT FROM stacksaga.kept_row"
                                  " WHERE relation = $1 AND row_key = $2 AND retry_at > $3"};
constinit pg::Statement list_kept{
    "SELECT row_key FROM stacksaga.kept_row WHERE relation = $1 AND retry_at > $2"};
constinit pg::Statement forget{
    "DELETE FROM stacksaga.kept_row WHERE relation = $1 AND retry_at <= $2"};

constinit LocalTransactionId transaction_of_retention = InvalidLocalTransactionId;

pg::Param text(const char *value) {
    return pg::param(std::string_view{value});
}

} // namespace

bool is_of_rows(const ErrorData &error) {
    switch (ERRCODE_TO_CATEGORY(error.sqlerrcode)) {
    case MAKE_SQLSTATE('0', '8', '0', '0', '0'): // connection
    case MAKE_SQLSTATE('2', '5', '0', '0', '0'): // state of the transaction
    case MAKE_SQLSTATE('4', '0', '0', '0', '0'): // conflict with another one
    case MAKE_SQLSTATE('5', '3', '0', '0', '0'): // resources
    case MAKE_SQLSTATE('5', '5', '0', '0', '0'): // locks
    case MAKE_SQLSTATE('5', '7', '0', '0', '0'): // cancelled
    case MAKE_SQLSTATE('5', '8', '0', '0', '0'): // system
    case MAKE_SQLSTATE('X', 'X', '0', '0', '0'): // internal
        return false;
    default:
        return true;
    }
}

void keep_row(const char *relation, std::string_view row_key, const char *error) {
    const TimestampTz now = pg::clock_now();
    const bool is_first = !has_kept_rows(relation);
    keep.touch(text(relation), pg::param(row_key), text(error), pg::param_time(now),
               pg::param_time(pg::time_plus(now, retry_us)));
    if (is_first)
        ereport(LOG,
                (errmsg("the retention cannot remove a row of stacksaga.%s", relation),
                 errdetail("Row %.*s: %s", static_cast<int>(row_key.size()), row_key.data(), error),
                 errhint("Other rows are removed. Remove what refers to it: doctor() lists such "
                         "rows, and each is tried again an hour later.")));
}

bool has_kept_rows(const char *relation) {
    return !find_any.run(text(relation)).empty();
}

void forget_kept_rows(const char *relation, TimestampTz now) {
    if (has_kept_rows(relation))
        forget.touch(text(relation), pg::param_time(now));
}

bool is_kept(const char *relation, std::string_view row_key, TimestampTz now) {
    return !find_kept.run(text(relation), pg::param(row_key), pg::param_time(now)).empty();
}

pg::Param kept_keys(const char *relation, TimestampTz now) {
    const pg::Rows rows = list_kept.run(text(relation), pg::param_time(now));
    auto *keys =
        static_cast<std::string_view *>(palloc(sizeof(std::string_view) * (rows.count() + 1)));
    for (uint64 row = 0; row < rows.count(); ++row)
        keys[row] = rows.text(row);
    return pg::param_array(std::span<const std::string_view>{keys, rows.count()});
}

void fire_constraints_from_now_on() {
    transaction_of_retention = pg::local_transaction_id();
}

void fire_constraints() {
    if (transaction_of_retention != pg::local_transaction_id())
        return;
    CommandCounterIncrement();
    AfterTriggerSetState(makeNode(ConstraintsSetStmt)); // SET CONSTRAINTS ALL IMMEDIATE
}

} // namespace stacksaga
