#include "src/schedule/time_zone.hpp"

#include "core/time/instant.hpp"
#include "core/time/local_time.hpp"

namespace stacksaga {

namespace {

constexpr int64 epoch_seconds =
    static_cast<int64>(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY;

} // namespace

core::OffsetChange TimeZone::change_after(int64 instant) const {
    const pg_time_t time = instant;
    pg_time_t boundary = 0;
    long before = 0, after = 0;
    int before_is_dst = 0, after_is_dst = 0;
    const int found = pg_next_dst_boundary(&time, &before, &before_is_dst, &boundary, &after,
                                           &after_is_dst, zone_);
    if (found < 0)
        elog(ERROR, "time zone has no offset at " INT64_FORMAT, instant);
    if (found == 0)
        return {.offset = before, .at = std::nullopt};
    return {.offset = before, .at = boundary};
}

std::optional<TimeZone> find_time_zone(const char *name) {
    pg_tz *zone = pg_tzset(name);
    // One that counts leap seconds is no zone of timestamps.
    if (zone == nullptr || !pg_tz_acceptable(zone))
        return std::nullopt;
    return TimeZone{zone};
}

int64 unix_seconds(TimestampTz time) {
    const int64 seconds = time / USECS_PER_SEC - (time % USECS_PER_SEC < 0 ? 1 : 0);
    return seconds + epoch_seconds;
}

TimestampTz time_of_unix_seconds(int64 seconds) {
    int64 time = 0;
    if (__builtin_mul_overflow(seconds - epoch_seconds, USECS_PER_SEC, &time))
        return core::last_instant;
    return std::min(time, core::last_instant);
}

} // namespace stacksaga
