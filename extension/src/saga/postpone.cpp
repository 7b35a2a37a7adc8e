#include "src/saga/postpone.hpp"

#include "core/common/put_off.hpp"
#include "core/ring/token.hpp"
#include "core/saga/work_purpose.hpp"

#include "pg/citus/shard_lock.hpp"
#include "pg/clock.hpp"
#include "pg/random.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"

namespace stacksaga {

namespace {

// Locks the saga's row but does not read it as the engine does: reading it may be the part that
// fails.
constinit pg::Statement lock_saga{
    "SELECT 1 FROM stacksaga.saga"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   FOR NO KEY UPDATE SKIP LOCKED"};
// A session that changes work holds the saga's row, so the row of work stays as read here until it
// is written. One statement cannot do both on Citus: it computes nothing with the time of a row.
#define OF_ITEM                                                                                    \
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"                 \
    "   AND purpose = $3::stacksaga.work_purpose AND step_no = $4 AND direction = $5"
enum class RowColumn : uint8_t { due_at, lease_until, postponed };
constinit pg::Select<RowColumn> read_row{
    "SELECT due_at, lease_until, coalesce(postponed, '0') AS postponed"
    "  FROM stacksaga.work" OF_ITEM};
constinit pg::Statement postpone{
    "UPDATE stacksaga.work SET due_at = $6, lease_until = $7, postponed = $8" OF_ITEM};
// The state of the saga is read again when the retry runs; here its lock is enough.
constinit pg::Statement defer{
    "UPDATE stacksaga.work SET due_at = $5, deferred = true"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND purpose = 'step' AND step_no = $3 AND direction = $4"
    "   AND due_at <= $6 AND lease_until IS NULL"};

pg::Param token_param(const DueItem &item) {
    return pg::param(core::token_of_uuid(item.saga_id.data).value());
}

bool try_lock_saga(const DueItem &item) {
    pg::hold_shard("saga", core::token_of_uuid(item.saga_id.data).value());
    return lock_saga.touch(pg::param(item.saga_id), token_param(item)) == 1;
}

/// The row of work of an item.
struct ItemRow {
    TimestampTz due_at;
    std::optional<TimestampTz> lease_until;
    int16 postponed; ///< times in a row
};

std::optional<ItemRow> find_row(const DueItem &item) {
    const auto rows = read_row.run(pg::param(item.saga_id), token_param(item),
                                   pg::param(core::name_of(item.purpose)), pg::param(item.step_no),
                                   pg::param(core::name_of(item.direction)));
    if (rows.empty())
        return std::nullopt;
    return ItemRow{.due_at = rows.time(0, RowColumn::due_at),
                   .lease_until = rows.optional_time(0, RowColumn::lease_until),
                   .postponed = rows.int2(0, RowColumn::postponed)};
}

const char *name_of(const DueItem &item) {
    return item.purpose == core::WorkPurpose::step ? psprintf("step %d", item.step_no)
                                                   : core::name_of(item.purpose).data();
}

constexpr int16 postponed_max = 100; // the pauses grow no longer then

/// How long to postpone; nothing when the item is no longer due, or its saga is locked. A timeout
/// that comes before its lease is still due then.
std::optional<int64> postpone_due(const DueItem &item, TimestampTz now) {
    if (!try_lock_saga(item))
        return std::nullopt;
    const std::optional<ItemRow> row = find_row(item);
    if (!row || row->due_at > now)
        return std::nullopt;
    const int64 pause = core::put_off_us(row->postponed, pg::random_fraction());
    const TimestampTz due_at = pg::time_plus(now, pause);
    std::optional<TimestampTz> lease_until = row->lease_until;
    if (lease_until)
        lease_until = pg::time_plus(*lease_until, due_at - row->due_at);
    const auto postponed = static_cast<int16>(std::min<int>(row->postponed + 1, postponed_max));
    if (postpone.touch(pg::param(item.saga_id), token_param(item),
                       pg::param(core::name_of(item.purpose)), pg::param(item.step_no),
                       pg::param(core::name_of(item.direction)), pg::param_time(due_at),
                       pg::param_time(lease_until), pg::param(postponed)) != 1)
        return std::nullopt;
    return pause;
}

} // namespace

void postpone_item(const DueItem &item) {
    if (const std::optional<int64> pause = postpone_due(item, pg::clock_now()))
        ereport(LOG,
                (errmsg("saga %s: %s is postponed for %d s", uuid_text(item.saga_id), name_of(item),
                        static_cast<int>((*pause + USECS_PER_SEC / 2) / USECS_PER_SEC)),
                 errdetail("The error above is not charged to it as a failed attempt."),
                 errhint("Other sagas run meanwhile. It is tried again until it succeeds.")));
}

bool postpone_retry(const DueItem &item, int64 delay_us) {
    const TimestampTz now = pg::clock_now();
    return try_lock_saga(item) &&
           defer.touch(pg::param(item.saga_id), token_param(item), pg::param(item.step_no),
                       pg::param(core::name_of(item.direction)),
                       pg::param_time(pg::time_plus(now, delay_us)), pg::param_time(now)) == 1;
}

bool is_put_off(const DueItem &item, const HandlerError &error) {
    if (!error.may_pass)
        return false;
    const std::optional<ItemRow> row = find_row(item);
    return !row || core::may_be_put_off(row->postponed);
}

namespace {

/// False when it failed: then it has changed nothing.
template <class F> bool attempt_settling(F &&body) {
    return pg::attempt_expecting(
        [](const ErrorData &error) {
            if (is_of_session(error))
                return false;
            ereport(LOG, (errmsg("an item that cannot be handed out is not settled: %s",
                                 error.message)));
            return true;
        },
        static_cast<F &&>(body));
}

} // namespace

bool settle_unfit(const DueItem &item, std::string_view worker, const HandlerError &error) {
    bool is_settled = false;
    if (!is_put_off(item, error))
        (void)attempt_settling([&] { is_settled = fail_item(item, worker, error).is_done; });
    return is_settled || attempt_settling([&] { postpone_item(item); });
}

} // namespace stacksaga
