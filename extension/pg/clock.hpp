// The one source of the time by which the extension decides: no decision calls GetCurrentTimestamp
// or now(), which a test cannot move.
#pragma once
#include "core/time/length.hpp"

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

/// The length of an interval; nullopt when it is infinite, does not fit, is negative (also where a
/// month is short), or is zero where it must be positive.
std::optional<core::Length> interval_in_range(Datum interval, bool positive);

/// SG400 instead, with a message that names `argument`.
core::Length interval_length(Datum interval, const char *argument, bool positive);

/// The microseconds of an interval that may have no months: SG400 too when it has.
int64 interval_microseconds(Datum interval, const char *argument, bool positive);

/// The same of an interval that may be negative.
int64 signed_microseconds(Datum interval, const char *argument);

/// The hint of every refusal of months.
inline constexpr const char *no_months_hint =
    "Use days, hours and shorter units: a month has 28 to 31 days.";

Datum interval_of_microseconds(int64 microseconds);
Datum interval_of(core::Length length);

/// For stacksaga.clock_offset: whether `text` is an interval, and its microseconds.
bool parse_clock_offset(const char *text, int64 *microseconds);

} // namespace stacksaga::pg
