// The one source of the time by which the extension decides: no decision calls GetCurrentTimestamp
// or now(), which a test cannot move.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// The database clock plus stacksaga.clock_offset, which only a superuser can set (for tests).
TimestampTz clock_now();

/// Microseconds of a clock that only measures how long something takes: nobody can set it.
int64 steady_now();
/// The processor time that this process has used, in microseconds: it stands still while others
/// run.
int64 processor_now();

/// `time` + `delta` microseconds, saturating within PostgreSQL's finite range.
TimestampTz time_plus(TimestampTz time, int64 delta);

/// The interval's length in microseconds, a month being 30 days; nullopt when it is infinite, does
/// not fit, is negative, or is zero where it must be positive.
std::optional<int64> interval_in_range(Datum interval, bool positive);

/// The microseconds of an interval (a month counts 30 days). SG400 when it is not finite, does not
/// fit, is negative, or is zero while `positive` is asked for; the message names `argument`.
int64 interval_microseconds(Datum interval, const char *argument, bool positive);

Datum interval_of_microseconds(int64 microseconds);

/// For stacksaga.clock_offset: whether `text` is an interval, and its microseconds.
bool parse_clock_offset(const char *text, int64 *microseconds);

} // namespace stacksaga::pg
