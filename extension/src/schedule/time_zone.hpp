// PostgreSQL's time zones, as core/time/local_time.hpp asks them.
#pragma once
#include "core/time/local_time.hpp"

#include "pg/pg.hpp"

namespace stacksaga {

/// Lives as long as the session.
class TimeZone {
public:
    explicit TimeZone(const pg_tz *zone) : zone_(zone) {}

    /// Of an instant in seconds since 1970-01-01 00:00:00 UTC.
    core::OffsetChange change_after(int64 instant) const;

private:
    const pg_tz *zone_;
};
static_assert(std::is_trivially_destructible_v<TimeZone>);

/// nullopt where there is no such zone. PostgreSQL also takes rules in the style of POSIX, such as
/// 'UTC+3', for zones; a caller that takes a name from a user refuses those.
std::optional<TimeZone> find_time_zone(const char *name);

/// The last whole second that is not after `time`, since 1970-01-01 00:00:00 UTC; and back.
int64 unix_seconds(TimestampTz time);
TimestampTz time_of_unix_seconds(int64 seconds);

} // namespace stacksaga
