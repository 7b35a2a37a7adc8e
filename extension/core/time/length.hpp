// How long something lasts: months and microseconds. Months have no fixed length, so they are added
// by the calendar, in UTC, as PostgreSQL adds them; a day is 24 hours.
#pragma once

#include "core/time/instant.hpp"

#include <algorithm>
#include <cstdint>

namespace stacksaga::core {

struct Length {
    std::int64_t microseconds = 0;
    std::int32_t months = 0; ///< not negative

    constexpr Length() = default;
    // NOLINTNEXTLINE(google-explicit-constructor): a length without months is a number
    constexpr Length(std::int64_t us, std::int32_t m = 0) : microseconds(us), months(m) {}
    constexpr bool operator==(const Length &) const = default;
};

namespace calendar {

inline constexpr std::int64_t us_per_day = 86'400'000'000;
inline constexpr std::int64_t days_to_2000 = 730'425; ///< since 0000-03-01
inline constexpr std::int64_t days_per_era = 146'097; ///< of 400 years
inline constexpr std::int64_t last_year = 294'276;    ///< of a timestamptz

struct Date {
    std::int64_t month; ///< since the March of the year 0
    std::int64_t day;   ///< from 1
};

constexpr std::int64_t floor_div(std::int64_t value, std::int64_t divisor) {
    return value / divisor - (value % divisor < 0 ? 1 : 0);
}

/// The days before a month of a year that begins with March.
constexpr std::int64_t days_before(std::int64_t month) {
    return (153 * month + 2) / 5;
}

/// The first day of a month, in days since 0000-03-01.
constexpr std::int64_t first_day(std::int64_t month) {
    const std::int64_t year = floor_div(month, 12), era = floor_div(year, 400);
    const std::int64_t of_era = year - era * 400;
    return era * days_per_era + of_era * 365 + of_era / 4 - of_era / 100 +
           days_before(month - year * 12);
}

constexpr Date date_of(std::int64_t days) {
    const std::int64_t era = floor_div(days, days_per_era), of_era = days - era * days_per_era;
    const std::int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    const std::int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
    const std::int64_t month = (5 * of_year + 2) / 153;
    return {.month = (era * 400 + year) * 12 + month, .day = of_year - days_before(month) + 1};
}

/// The same time of the same day `months` later, or of the last day of that month.
constexpr std::int64_t plus_months(std::int64_t instant, std::int32_t months) {
    const std::int64_t days = floor_div(instant, us_per_day);
    const Date date = date_of(days + days_to_2000);
    const std::int64_t month = date.month + months;
    if (month > last_year * 12 + 9) // its December
        return last_instant;
    const std::int64_t first = first_day(month);
    const std::int64_t day = std::min(first + date.day, first_day(month + 1)) - 1;
    return (day - days_to_2000) * us_per_day + (instant - days * us_per_day);
}

} // namespace calendar

/// Months first, as PostgreSQL adds an interval.
constexpr std::int64_t time_plus(std::int64_t instant, Length length) {
    return time_plus(length.months == 0 ? instant : calendar::plus_months(instant, length.months),
                     length.microseconds);
}

/// How many microseconds it lasts from this instant on.
constexpr std::int64_t microseconds_from(std::int64_t instant, Length length) {
    return length.months == 0 ? length.microseconds : time_plus(instant, length) - instant;
}

/// The most that it can last, for comparisons with a retention: a month has at most 31
/// days.
constexpr std::int64_t longest(Length length) {
    std::int64_t sum = 0;
    return __builtin_add_overflow(length.microseconds,
                                  std::int64_t{length.months} * 31 * calendar::us_per_day, &sum)
               ? INT64_MAX
               : sum;
}

} // namespace stacksaga::core
