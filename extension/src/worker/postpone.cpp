#include "src/worker/postpone.hpp"

#include "pg/clock.hpp"
#include "pg/query.hpp"
#include "pg/random.hpp"
#include "src/common/limits.hpp"

namespace stacksaga {

namespace {

constexpr core::RetryPolicy pauses{.max_attempts = 0,
                                   .initial_interval_us = USECS_PER_SEC,
                                   .max_interval_us = 300 * USECS_PER_SEC,
                                   .multiplier = 2,
                                   .jitter = 0.2};

// Locks the saga's row but does not read it as the engine does: that may be what fails. A timeout
// that comes before its lease still does.
constinit pg::Statement postpone{
    "WITH s AS (SELECT saga_id, token FROM stacksaga.saga"
    "            WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "              FOR NO KEY UPDATE SKIP LOCKED)"
    " UPDATE stacksaga.work w SET due_at = $5, lease_until = w.lease_until + ($5 - w.due_at)"
    "   FROM s WHERE w.saga_id = s.saga_id AND w.token OPERATOR(stacksaga.=) s.token"
    "    AND w.purpose = $7::stacksaga.work_purpose AND w.step_no = $3 AND w.direction = $4"
    "    AND w.due_at <= $6"};

/// How often items were postponed, by their hash: an item that falls on the place of another takes
/// it, and the other begins with short pauses again.
struct Place {
    uint64 key;
    int64 times;
};
constinit std::array<Place, 64> places{};

int64 times_of(const DueItem &item) {
    const std::string_view id{reinterpret_cast<const char *>(item.saga_id.data), UUID_LEN};
    const auto seed = static_cast<uint32>(item.step_no * 8 + static_cast<int>(item.purpose) * 2 +
                                          static_cast<int>(item.direction));
    const uint64 key = core::murmur3_x64_128(id, seed).h1;
    Place &place = places[key % places.size()];
    if (place.key != key)
        place = {.key = key, .times = 0};
    return ++place.times;
}

const char *name_of(const DueItem &item) {
    return item.purpose == core::WorkPurpose::step ? psprintf("step %d", item.step_no)
                                                   : core::name_of(item.purpose).data();
}

} // namespace

void postpone_item(const DueItem &item) {
    const TimestampTz now = pg::clock_now();
    const int64 pause = core::delay_before(times_of(item) + 1, pauses, pg::random_fraction());
    const uint64 count = postpone.touch(
        pg::param(item.saga_id), pg::param(core::token_of_uuid(item.saga_id.data).value()),
        pg::param(item.step_no), pg::param(core::name_of(item.direction)),
        pg::param_time(pg::time_plus(now, pause)), pg::param_time(now),
        pg::param(core::name_of(item.purpose)));
    if (count != 0)
        ereport(LOG, (errmsg("saga %s: %s is postponed for %d s", uuid_text(item.saga_id),
                             name_of(item), static_cast<int>(pause / USECS_PER_SEC)),
                      errdetail("The error above is not charged to it as a failed attempt."),
                      errhint("Other sagas run meanwhile. It is tried again until it succeeds.")));
}

} // namespace stacksaga
