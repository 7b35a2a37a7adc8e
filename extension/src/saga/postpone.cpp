#include "src/saga/postpone.hpp"

#include "core/murmur3.hpp"
#include "core/retry.hpp"
#include "core/session_cache.hpp"
#include "core/token.hpp"
#include "core/work_purpose.hpp"

#include "pg/clock.hpp"
#include "pg/query.hpp"
#include "pg/random.hpp"
#include "pg/shard_lock.hpp"
#include "src/common/limits.hpp"

namespace stacksaga {

namespace {

constexpr int64 put_off_max = 3;
constexpr core::RetryPolicy pauses{.max_attempts = 0,
                                   .initial_interval_us = USECS_PER_SEC,
                                   .max_interval_us = 60 * USECS_PER_SEC,
                                   .multiplier = 2,
                                   .jitter = 0.2};

// Locks the saga's row but does not read it as the engine does: that may be what fails.
constinit pg::Statement lock_saga{
    "SELECT 1 FROM stacksaga.saga"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   FOR NO KEY UPDATE SKIP LOCKED"};
// Who changes work holds the saga's row, so what is read here is still so when it is written. One
// statement cannot do both on Citus: it computes nothing with the time of a row.
constinit pg::Statement read_times{
    "SELECT due_at, lease_until FROM stacksaga.work"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND purpose = $3::stacksaga.work_purpose AND step_no = $4 AND direction = $5"
    "   AND due_at <= $6"};
constinit pg::Statement postpone{
    "UPDATE stacksaga.work SET due_at = $6, lease_until = $7"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND purpose = $3::stacksaga.work_purpose AND step_no = $4 AND direction = $5"};
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

/// How often items were postponed, by their hash: an item that falls on the place of another takes
/// it, and the other begins with short pauses again.
constinit core::SessionCache<int64, 64> postponed{};

/// Beginning with 0.
int64 &times_of(const DueItem &item) {
    const std::string_view id{reinterpret_cast<const char *>(item.saga_id.data), UUID_LEN};
    const auto seed = static_cast<uint32>(item.step_no * 8 + static_cast<int>(item.purpose) * 2 +
                                          static_cast<int>(item.direction));
    const uint64 key = core::murmur3_x64_128(id, seed).h1;
    return postponed.value(key, [] { return int64{0}; });
}

const char *name_of(const DueItem &item) {
    return item.purpose == core::WorkPurpose::step ? psprintf("step %d", item.step_no)
                                                   : core::name_of(item.purpose).data();
}

/// Whether the item was still due, and its saga not locked. A timeout that comes before its lease
/// still does.
bool postpone_due(const DueItem &item, TimestampTz now, int64 pause) {
    if (!try_lock_saga(item))
        return false;
    const pg::Param id = pg::param(item.saga_id), token = token_param(item),
                    purpose = pg::param(core::name_of(item.purpose)),
                    step_no = pg::param(item.step_no),
                    direction = pg::param(core::name_of(item.direction));
    const pg::Rows times =
        read_times.run(id, token, purpose, step_no, direction, pg::param_time(now));
    if (times.empty())
        return false;
    const TimestampTz due_at = pg::time_plus(now, pause);
    std::optional<TimestampTz> lease_until = times.optional_time(0, 1);
    if (lease_until)
        lease_until = pg::time_plus(*lease_until, due_at - times.time(0, 0));
    return postpone.touch(id, token, purpose, step_no, direction, pg::param_time(due_at),
                          pg::param_time(lease_until)) == 1;
}

} // namespace

void postpone_item(const DueItem &item) {
    const TimestampTz now = pg::clock_now();
    const int64 pause = core::delay_before(++times_of(item) + 1, pauses, pg::random_fraction());
    if (postpone_due(item, now, pause))
        ereport(LOG, (errmsg("saga %s: %s is postponed for %d s", uuid_text(item.saga_id),
                             name_of(item), static_cast<int>(pause / USECS_PER_SEC)),
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
    return error.may_pass && times_of(item) < put_off_max;
}

namespace {

/// False when it failed; what it did has not happened then.
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
