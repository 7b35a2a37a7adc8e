#include "src/schedule/recurrence.hpp"

#include "core/time/cron.hpp"
#include "core/time/instant.hpp"
#include "core/time/local_time.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"

namespace stacksaga {

namespace {

constexpr int32 shown_runs_max = 1000;

constinit pg::Statement find_listed_zone{
    "SELECT name FROM pg_catalog.pg_timezone_names WHERE lower(name) = lower($1) LIMIT 1"};

const char *name_of(core::CronField field) {
    return core::rule_of(field).name.data();
}

const char *detail_of(const core::CronReading &reading) {
    const char *field = name_of(reading.field);
    const char *culprit = clip(reading.culprit);
    switch (reading.problem) {
    case core::CronProblem::field_count:
        return psprintf("The value is \"%s\".", culprit);
    case core::CronProblem::unknown_macro:
        return psprintf("\"%s\" is not known.", culprit);
    case core::CronProblem::not_a_value:
        return reading.culprit.empty() ? psprintf("A value of its %s is missing.", field)
                                       : psprintf("\"%s\" is no value of its %s.", culprit, field);
    case core::CronProblem::out_of_range:
        return psprintf("Its %s has the value %s.", field, culprit);
    case core::CronProblem::reversed_range:
        return psprintf("The range %s of its %s ends before it begins.", culprit, field);
    case core::CronProblem::bad_step:
        return psprintf("A step of its %s is \"%s\".", field, culprit);
    case core::CronProblem::lonely_step:
        return psprintf("The step \"%s\" of its %s has no range.", culprit, field);
    case core::CronProblem::no_such_day:
        return psprintf("No day matches \"%s\".", culprit);
    case core::CronProblem::none:
        break;
    }
    pg_unreachable();
}

const char *hint_of(const core::CronReading &reading) {
    const core::CronFieldRule &rule = core::rule_of(reading.field);
    switch (reading.problem) {
    case core::CronProblem::field_count:
        return "Write five fields (minute, hour, day of month, month, day of week), or six that "
               "begin with the second.";
    case core::CronProblem::unknown_macro:
        return "Use @hourly, @daily, @weekly, @monthly or @yearly, or write the fields.";
    case core::CronProblem::lonely_step:
        return "Write the range that the step goes through, such as 5-59/15, or */15.";
    case core::CronProblem::bad_step:
        return psprintf("A step is a number from 1 to %d; for a longer interval use the next "
                        "field.",
                        rule.last - rule.first);
    case core::CronProblem::no_such_day:
        return "Choose a day that the month has.";
    default:
        return psprintf("Use values from %d to %d%s, lists (a,b), ranges (a-b), * and steps (*/n, "
                        "a-b/n).",
                        rule.first, rule.last,
                        reading.field == core::CronField::month     ? " or JAN to DEC"
                        : reading.field == core::CronField::weekday ? " or SUN to SAT"
                                                                    : "");
    }
}

[[noreturn]] void refuse_cron(const core::CronReading &reading) {
    ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"cron\" is not a cron expression"),
                    errdetail("%s", detail_of(reading)), errhint("%s", hint_of(reading))));
}

[[noreturn]] void refuse_zone(std::string_view zone) {
    ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"timezone\" names no time zone"),
                    errdetail("The value is \"%s\".", clip(zone)),
                    errhint("Use a name of pg_timezone_names, such as Europe/Berlin or UTC; an "
                            "offset is none.")));
}

} // namespace

TimestampTz Recurrence::next(TimestampTz time) const {
    if (TIMESTAMP_NOT_FINITE(time))
        return DT_NOEND;
    const std::optional<int64> instant = core::next_instant(cron, zone, unix_seconds(time));
    const TimestampTz found = instant ? time_of_unix_seconds(*instant) : DT_NOEND;
    return found < core::last_instant ? found : DT_NOEND;
}

Recurrence read_recurrence(std::string_view cron, std::string_view zone) {
    const core::CronReading reading = core::read_cron(cron);
    if (reading.problem != core::CronProblem::none)
        refuse_cron(reading);
    const std::optional<TimeZone> found = find_time_zone(pnstrdup(zone.data(), zone.size()));
    if (!found)
        refuse_zone(zone);
    return {.cron = reading.cron, .zone = *found};
}

const char *listed_zone(std::string_view zone) {
    pg::Rows rows = find_listed_zone.run(pg::param(zone));
    if (rows.empty())
        refuse_zone(zone);
    const std::string_view name = rows.text(0);
    return pnstrdup(name.data(), name.size());
}

TimestampTz earliest_of_latest(const Recurrence &recurrence, TimestampTz first, TimestampTz last,
                               int32 count) {
    auto *latest =
        static_cast<TimestampTz *>(palloc(sizeof(TimestampTz) * static_cast<size_t>(count)));
    // Looks back over a time that doubles until it has `count` instants, or all.
    for (int64 back = count * USECS_PER_SEC;; back *= 2) {
        const TimestampTz from = back < last - first ? last - back : first;
        int64 found = 0;
        for (TimestampTz at = recurrence.next(from - 1); at <= last; at = recurrence.next(at)) {
            CHECK_FOR_INTERRUPTS();
            latest[found++ % count] = at;
        }
        if (found >= count)
            return latest[found % count];
        if (from == first)
            return first;
    }
}

// next_runs(cron, timezone, after, max_runs) -> SETOF timestamptz
STACKSAGA_FUNCTION(next_runs) {
    pg::Arguments arguments(fcinfo);
    const std::string_view cron = arguments.required_text(0, "cron");
    const std::string_view zone = arguments.required_text(1, "timezone");
    TimestampTz at =
        arguments.is_null(2) ? pg::clock_now() : DatumGetTimestampTz(arguments.datum(2));
    const int32 count = arguments.required_int4(3, "max_runs");
    if (count < 1 || count > shown_runs_max)
        ereport(ERROR,
                (errcode(pg::sg400), errmsg("argument \"max_runs\" is out of range"),
                 errdetail("The value is %d.", count), errhint("Use 1 to %d.", shown_runs_max)));
    const Recurrence recurrence =
        pg::with_spi([&] { return read_recurrence(cron, listed_zone(zone)); });
    pg::ResultSet result(fcinfo);
    for (int32 i = 0; i < count; ++i) {
        at = recurrence.next(at);
        if (at == DT_NOEND)
            break;
        result.add(pg::of(TimestampTzGetDatum(at)));
    }
    return result.finish();
}

} // namespace stacksaga
