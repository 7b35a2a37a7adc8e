// Cron expressions: what is read, what is refused, and the next local time against a search through
// every second of every day.
#include "core/time/cron.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <set>
#include <string>

namespace stacksaga::core {
namespace {

using namespace std::chrono;

std::int64_t at(int y, unsigned m, unsigned d, int hour = 0, int minute = 0, int second = 0) {
    const sys_days days{year{y} / month{m} / day{d}};
    return ((days.time_since_epoch().count() * 24LL + hour) * 60 + minute) * 60 + second;
}

Cron valid(std::string_view text) {
    const CronReading reading = read_cron(text);
    EXPECT_EQ(reading.problem, CronProblem::none) << text << ": " << reading.culprit;
    return reading.cron;
}

TEST(Cron, FiveFieldsNameTheFirstSecondOfAMinute) {
    EXPECT_EQ(valid("30 2 * * *").next(at(2026, 1, 1, 2, 29, 59)), at(2026, 1, 1, 2, 30));
    EXPECT_EQ(valid("30 2 * * *").next(at(2026, 1, 1, 2, 30)), at(2026, 1, 2, 2, 30));
    EXPECT_EQ(valid(" 30\t2  * * * ").next(at(2025, 12, 31, 3)), at(2026, 1, 1, 2, 30));
}

TEST(Cron, SixFieldsBeginWithTheSecond) {
    EXPECT_EQ(valid("*/20 30 2 * * *").next(at(2026, 1, 1, 2, 30, 20)), at(2026, 1, 1, 2, 30, 40));
    EXPECT_EQ(valid("5 * * * * *").next(at(2026, 1, 1, 2, 30, 5)), at(2026, 1, 1, 2, 31, 5));
}

TEST(Cron, SundayIsZeroAndSeven) {
    const std::int64_t saturday = at(2026, 1, 3, 12), sunday = at(2026, 1, 4);
    for (const char *text : {"0 0 * * 0", "0 0 * * 7", "0 0 * * sun", "0 0 * * SUN", "0 0 * * 7-7"})
        EXPECT_EQ(valid(text).next(saturday), sunday) << text;
    for (const char *text : {"0 0 * * 5-7", "0 0 * * fri-sun", "0 0 * * 5-0"})
        EXPECT_EQ(valid(text).next(saturday), sunday) << text;
    EXPECT_EQ(valid("0 0 * * 0-0").next(sunday), at(2026, 1, 11));
    EXPECT_EQ(valid("0 0 * * 1-5").next(at(2026, 1, 2, 12)), at(2026, 1, 5));
}

TEST(Cron, DayOfMonthOrDayOfWeekIsEnoughUnlessOneBeginsWithAStar) {
    // The 13th, and each Friday.
    const Cron either = valid("0 0 13 * fri");
    EXPECT_EQ(either.next(at(2026, 1, 1)), at(2026, 1, 2));
    EXPECT_EQ(either.next(at(2026, 1, 9)), at(2026, 1, 13));
    // Mondays on odd days, as Vixie cron reads it.
    const Cron both = valid("0 0 */2 * mon");
    EXPECT_EQ(both.next(at(2026, 1, 1)), at(2026, 1, 5));
    EXPECT_EQ(both.next(at(2026, 1, 5)), at(2026, 1, 19));
}

TEST(Cron, NamesRangesStepsAndLists) {
    EXPECT_EQ(valid("0 0 1 feb,Apr-jun *").next(at(2026, 2, 2)), at(2026, 4, 1));
    EXPECT_EQ(valid("10-30/10,45 * * * *").next(at(2026, 1, 1, 0, 30)), at(2026, 1, 1, 0, 45));
    EXPECT_EQ(valid("10-30/10,45 * * * *").next(at(2026, 1, 1, 0, 45)), at(2026, 1, 1, 1, 10));
}

TEST(Cron, MacrosStandForFields) {
    const std::int64_t now = at(2026, 5, 6, 7, 8, 9);
    EXPECT_EQ(valid("@hourly").next(now), at(2026, 5, 6, 8));
    EXPECT_EQ(valid("@daily").next(now), at(2026, 5, 7));
    EXPECT_EQ(valid("@midnight").next(now), at(2026, 5, 7));
    EXPECT_EQ(valid("@weekly").next(now), at(2026, 5, 10));
    EXPECT_EQ(valid("@Monthly").next(now), at(2026, 6, 1));
    EXPECT_EQ(valid("@yearly").next(now), at(2027, 1, 1));
    EXPECT_EQ(valid("@annually").next(now), at(2027, 1, 1));
}

TEST(Cron, LeapDaysAreFoundAcrossACenturyWithoutOne) {
    EXPECT_EQ(valid("0 0 29 2 *").next(at(2024, 3, 1)), at(2028, 2, 29));
    EXPECT_EQ(valid("0 0 29 2 *").next(at(2096, 3, 1)), at(2104, 2, 29));
    EXPECT_EQ(valid("0 0 29 2 *").next(at(1896, 3, 1)), at(1904, 2, 29));
}

TEST(Cron, LeapDaysOfOneWeekdayAreFoundAcrossFortyYears) {
    EXPECT_EQ(valid("0 0 29 2 */7").next(at(2032, 2, 29)), at(2060, 2, 29));       // a Sunday
    EXPECT_EQ(valid("0 0 29 2 */7").next(at(1880, 2, 29)), at(1920, 2, 29));       // 1900 has none
    EXPECT_EQ(valid("30 4 */28 2 1").next(at(2052, 3, 1)), at(2055, 2, 1, 4, 30)); // a Monday
    for (int day = 0; day < 7; ++day) {
        const std::string text = "0 0 */28 2 " + std::to_string(day);
        const Cron cron = valid(text);
        std::int64_t local = at(1800, 1, 1);
        for (int run = 0; run < 200; ++run) {
            const std::optional<std::int64_t> next = cron.next(local);
            ASSERT_TRUE(next) << text << " after " << local;
            const sys_days date{floor<days>(sys_seconds{seconds{*next}})};
            EXPECT_EQ(weekday{date}.c_encoding(), static_cast<unsigned>(day));
            local = *next;
        }
    }
}

TEST(Cron, ADayThatNoYearHasIsRefusedAndEachOtherOneIsFound) {
    constexpr std::array lengths{31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    for (int month = 1; month <= 12; ++month)
        for (int day = 1; day <= 31; ++day)
            for (const char *weekday : {"*", "*/7", "*/6", "*/5"}) {
                const std::string text =
                    "0 0 " + std::to_string(day) + ' ' + std::to_string(month) + ' ' + weekday;
                const bool is_there = day <= lengths[static_cast<std::size_t>(month - 1)];
                const CronReading reading = read_cron(text);
                EXPECT_EQ(reading.problem, is_there ? CronProblem::none : CronProblem::no_such_day)
                    << text;
                if (is_there) {
                    EXPECT_TRUE(reading.cron.next(at(2096, 3, 1))) << text;
                }
            }
}

TEST(Cron, RefusesWithTheFieldAndTheCulprit) {
    struct Case {
        const char *text;
        CronProblem problem;
        CronField field;
        const char *culprit;
    };
    using enum CronProblem;
    using enum CronField;
    for (const Case &c : {
             Case{"60 * * * *", out_of_range, minute, "60"},
             Case{"* 24 * * *", out_of_range, hour, "24"},
             Case{"* * 0 * *", out_of_range, day, "0"},
             Case{"* * * 13 *", out_of_range, month, "13"},
             Case{"* * * * 8", out_of_range, weekday, "8"},
             Case{"60 * * * * *", out_of_range, second, "60"},
             Case{"* * * * L", not_a_value, weekday, "L"},
             Case{"* jan * * *", not_a_value, hour, "jan"},
             Case{"1,,2 * * * *", not_a_value, minute, ""},
             Case{"1, * * * *", not_a_value, minute, ""},
             Case{"1- * * * *", not_a_value, minute, ""},
             Case{"-1 * * * *", not_a_value, minute, ""},
             Case{"1-2-3 * * * *", not_a_value, minute, "2-3"},
             Case{"+1 * * * *", not_a_value, minute, "+1"},
             Case{"99999999999 * * * *", not_a_value, minute, "99999999999"},
             Case{"30-10 * * * *", reversed_range, minute, "30-10"},
             Case{"*/0 * * * *", bad_step, minute, "0"},
             Case{"*/ * * * *", bad_step, minute, ""},
             Case{"*/90 * * * *", bad_step, minute, "90"},
             Case{"*/-5 * * * *", bad_step, minute, "-5"},
             Case{"5/15 * * * *", lonely_step, minute, "5/15"},
         }) {
        const CronReading reading = read_cron(c.text);
        EXPECT_EQ(reading.problem, c.problem) << c.text;
        EXPECT_EQ(reading.field, c.field) << c.text;
        EXPECT_EQ(reading.culprit, c.culprit) << c.text;
    }
    for (const char *text : {"", " ", "* * * *", "* * * * * * *", "5", "@daily *"})
        EXPECT_EQ(read_cron(text).problem, field_count) << text;
    for (const char *text : {"@reboot", "@", "@every"})
        EXPECT_EQ(read_cron(text).problem, unknown_macro) << text;
    for (const char *text : {"0 0 30 2 *", "0 0 31 4,6,9,11 *"})
        EXPECT_EQ(read_cron(text).problem, no_such_day) << text;
}

/// A field as a list of some of its values, and these.
struct RandomField {
    std::string text;
    std::set<int> values;
};

RandomField random_field(std::mt19937 &random, int first, int last, bool may_be_any) {
    RandomField field;
    if (may_be_any && random() % 3 == 0) {
        field.text = "*";
        for (int i = first; i <= last; ++i)
            field.values.insert(i);
        return field;
    }
    const auto length = static_cast<unsigned>(last - first + 1);
    for (auto count = 1 + random() % 3; count > 0; --count) {
        const int low = first + static_cast<int>(random() % length);
        const int high = low + static_cast<int>(random() % static_cast<unsigned>(last - low + 1));
        const int step = 1 + static_cast<int>(random() % (length - 1));
        if (!field.text.empty())
            field.text += ',';
        switch (random() % 3) {
        case 0:
            field.text += std::to_string(low);
            field.values.insert(low);
            break;
        case 1:
            field.text += std::to_string(low) + '-' + std::to_string(high);
            for (int value = low; value <= high; ++value)
                field.values.insert(value);
            break;
        default:
            field.text +=
                std::to_string(low) + '-' + std::to_string(high) + '/' + std::to_string(step);
            for (int value = low; value <= high; value += step)
                field.values.insert(value);
        }
    }
    return field;
}

TEST(Cron, NextIsTheFirstMatchOfASearchThroughEverySecond) {
    std::mt19937 random{20260329};
    for (int round = 0; round < 300; ++round) {
        const std::array fields{
            random_field(random, 0, 59, true), random_field(random, 0, 59, true),
            random_field(random, 0, 23, true), random_field(random, 1, 31, true),
            random_field(random, 1, 12, true), random_field(random, 0, 6, true)};
        std::string text;
        for (const RandomField &field : fields)
            text += field.text + ' ';
        if (read_cron(text).problem == CronProblem::no_such_day)
            continue;
        const Cron cron = valid(text);
        const bool any_day = fields[3].text == "*", any_weekday = fields[5].text == "*";
        const std::int64_t begin = at(1960 + static_cast<int>(random() % 200), 1, 1) +
                                   static_cast<int>(random() % 31536000);
        const std::optional<std::int64_t> found = cron.next(begin);
        ASSERT_TRUE(found) << text;
        for (std::int64_t local = begin + 1;; ++local) {
            const sys_seconds time{seconds{local}};
            const auto date = floor<days>(time);
            const year_month_day ymd{date};
            const hh_mm_ss clock{time - date};
            const bool in_month = fields[3].values.contains(static_cast<int>(unsigned{ymd.day()}));
            const bool in_week =
                fields[5].values.contains(static_cast<int>(weekday{date}.c_encoding()));
            const bool is_day =
                fields[4].values.contains(static_cast<int>(unsigned{ymd.month()})) &&
                (any_day || any_weekday ? in_month && in_week : in_month || in_week);
            if (!is_day) { // to the last second of the day
                local = (date.time_since_epoch().count() + 1) * 86400LL - 1;
                ASSERT_LT(local, *found) << text;
                continue;
            }
            if (fields[2].values.contains(static_cast<int>(clock.hours().count())) &&
                fields[1].values.contains(static_cast<int>(clock.minutes().count())) &&
                fields[0].values.contains(static_cast<int>(clock.seconds().count()))) {
                ASSERT_EQ(*found, local) << text << " after " << begin;
                break;
            }
            ASSERT_LT(local, *found) << text << " after " << begin;
        }
    }
}

} // namespace
} // namespace stacksaga::core
