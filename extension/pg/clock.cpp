#include "pg/clock.hpp"

#include "core/time/length.hpp"

#include "pg/compat.hpp"
#include "pg/errors.hpp"
#include "pg/settings.hpp"

namespace stacksaga::pg {

namespace {

constexpr int shortest_month = 28; // days

/// Days are 24 hours. False when it does not fit.
bool total_microseconds(const Interval &interval, int days_per_month, int64 *result) {
    __int128 total = static_cast<__int128>(interval.month) * days_per_month + interval.day;
    total = total * USECS_PER_DAY + interval.time;
    if (total > std::numeric_limits<int64>::max() || total < std::numeric_limits<int64>::min())
        return false;
    *result = static_cast<int64>(total);
    return true;
}

const char *print(Datum interval) {
    return DatumGetCString(DirectFunctionCall1(interval_out, interval));
}

void refuse_months(Datum interval, const char *argument) {
    if (DatumGetIntervalP(interval)->month != 0)
        ereport(ERROR,
                (errcode(sg400), errmsg("interval \"%s\" must not have months", argument),
                 errdetail("The value is %s.", print(interval)), errhint("%s", no_months_hint)));
}

} // namespace

TimestampTz clock_now() {
    return time_plus(GetCurrentTimestamp(), settings.clock_offset_us);
}

int64 steady_now() {
    instr_time now;
    INSTR_TIME_SET_CURRENT(now);
    return static_cast<int64>(INSTR_TIME_GET_MICROSEC(now));
}

int64 processor_now() {
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * USECS_PER_SEC + used.tv_nsec / 1000;
}

TimestampTz time_plus(TimestampTz time, int64 delta) {
    return core::time_plus(time, delta);
}

std::optional<core::Length> interval_in_range(Datum datum, bool positive) {
    const Interval &interval = *DatumGetIntervalP(datum);
    int64 least = 0, rest = 0;
    const bool fits = is_finite(interval) && interval.month >= 0 &&
                      total_microseconds(interval, shortest_month, &least) &&
                      total_microseconds(interval, 0, &rest);
    if (!fits || least < 0 || (positive && least == 0))
        return std::nullopt;
    return core::Length{rest, interval.month};
}

core::Length interval_length(Datum datum, const char *argument, bool positive) {
    const std::optional<core::Length> result = interval_in_range(datum, positive);
    if (!result)
        ereport(ERROR, (errcode(sg400), errmsg("interval \"%s\" is out of range", argument),
                        errdetail("The value is %s.", print(datum)),
                        errhint("Use a finite interval that is %s.",
                                positive ? "greater than zero" : "not negative")));
    return *result;
}

int64 interval_microseconds(Datum datum, const char *argument, bool positive) {
    const core::Length length = interval_length(datum, argument, positive);
    refuse_months(datum, argument);
    return length.microseconds;
}

int64 signed_microseconds(Datum datum, const char *argument) {
    const Interval &interval = *DatumGetIntervalP(datum);
    int64 result = 0;
    if (!is_finite(interval) || !total_microseconds(interval, shortest_month, &result))
        ereport(ERROR,
                (errcode(sg400), errmsg("interval \"%s\" is out of range", argument),
                 errdetail("The value is %s.", print(datum)), errhint("Use a finite interval.")));
    refuse_months(datum, argument);
    return result;
}

Datum interval_of_microseconds(int64 microseconds) {
    return interval_of(microseconds);
}

Datum interval_of(core::Length length) {
    auto *interval = static_cast<Interval *>(palloc0(sizeof(Interval)));
    interval->time = length.microseconds;
    interval->month = length.months;
    return IntervalPGetDatum(interval);
}

bool parse_clock_offset(const char *text, int64 *microseconds) {
    // interval_in raises on bad input, as check_timezone's use of it in PostgreSQL itself does.
    Datum datum = DirectFunctionCall3(interval_in, CStringGetDatum(text),
                                      ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
    const Interval &interval = *DatumGetIntervalP(datum);
    return is_finite(interval) && total_microseconds(interval, DAYS_PER_MONTH, microseconds);
}

} // namespace stacksaga::pg
