// Lengths with months against the calendar of the standard library.
#include "core/time/length.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace stacksaga::core {
namespace {

using namespace std::chrono;

constexpr std::int64_t us_per_day = 86'400'000'000;
constexpr sys_days epoch{year{2000} / January / 1};

std::int64_t at(int y, unsigned m, unsigned d, std::int64_t us = 0) {
    return (sys_days{year{y} / month{m} / day{d}} - epoch).count() * us_per_day + us;
}

TEST(Length, MonthsAreThoseOfTheCalendar) {
    EXPECT_EQ(time_plus(at(2031, 1, 31, 5), Length(0, 1)), at(2031, 2, 28, 5));
    EXPECT_EQ(time_plus(at(2032, 1, 31), Length(0, 1)), at(2032, 2, 29));
    EXPECT_EQ(time_plus(at(2032, 2, 29), Length(0, 12)), at(2033, 2, 28));
    EXPECT_EQ(time_plus(at(2000, 2, 29), Length(0, 4800)), at(2400, 2, 29));
    EXPECT_EQ(time_plus(at(1999, 12, 31, us_per_day - 1), Length(0, 2)),
              at(2000, 2, 29, us_per_day - 1));
}

TEST(Length, DaysAreAddedBehindTheMonths) {
    EXPECT_EQ(time_plus(at(2031, 1, 31), Length(us_per_day, 1)), at(2031, 3, 1));
    EXPECT_EQ(time_plus(at(2031, 1, 30), Length(-us_per_day, 1)), at(2031, 2, 27));
}

TEST(Length, WithoutMonthsItIsANumber) {
    EXPECT_EQ(time_plus(at(2031, 1, 31), Length(30 * us_per_day)), at(2031, 3, 2));
    EXPECT_EQ(microseconds_from(at(2031, 1, 31), Length(7)), 7);
    EXPECT_EQ(longest(Length(7)), 7);
}

TEST(Length, ItIsAtMost31DaysAMonth) {
    EXPECT_EQ(longest(Length(7, 2)), 62 * us_per_day + 7);
    EXPECT_EQ(longest(Length(INT64_MAX, 1)), INT64_MAX);
    EXPECT_EQ(microseconds_from(at(2031, 1, 31), Length(0, 1)), 28 * us_per_day);
}

TEST(Length, ItEndsWithTheInstantsOfATimestamp) {
    EXPECT_EQ(time_plus(at(2031, 1, 31), Length(0, INT32_MAX)), last_instant);
    EXPECT_EQ(time_plus(last_instant, Length(0, 1)), last_instant);
    EXPECT_EQ(time_plus(at(2031, 1, 31), Length(INT64_MAX, 1)), last_instant);
}

TEST(Length, AnyMonthsFromAnyDayAreThoseOfTheStandardLibrary) {
    std::mt19937_64 random{20310131};
    for (int round = 0; round < 200'000; ++round) {
        const auto day = static_cast<std::int64_t>(random() % (900 * 366)) - 400 * 366;
        const auto us = static_cast<std::int64_t>(random() % us_per_day);
        const auto count = static_cast<std::int32_t>(random() % 6000);
        const year_month_day date{epoch + days{day}};
        const year_month in = date.year() / date.month() + months{count};
        const auto last = year_month_day_last{in.year(), month_day_last{in.month()}}.day();
        const sys_days wanted{in / std::min(date.day(), last)};
        ASSERT_EQ(time_plus(day * us_per_day + us, Length(0, count)),
                  (wanted - epoch).count() * us_per_day + us)
            << day << " and " << count << " months";
    }
}

} // namespace
} // namespace stacksaga::core
