// Local times of zones whose clocks change, and schedules on the days of the change.
#include "core/time/local_time.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

namespace stacksaga::core {
namespace {

constexpr std::int64_t hour = 3600;

/// A zone as the list of its changes.
struct Zone {
    struct Change {
        std::int64_t at;
        std::int64_t offset; ///< from then on
    };
    std::int64_t first_offset;
    std::vector<Change> changes;

    OffsetChange change_after(std::int64_t instant) const {
        std::int64_t offset = first_offset;
        for (const Change &change : changes) {
            if (change.at > instant)
                return {offset, change.at};
            offset = change.offset;
        }
        return {offset, std::nullopt};
    }
};

// 2026-03-29 01:00 UTC and 2026-10-25 01:00 UTC: an hour forward at 2, and back at 3.
constexpr std::int64_t berlin_forward = 1774746000, berlin_back = 1792890000;
const Zone berlin{hour, {{berlin_forward, 2 * hour}, {berlin_back, hour}}};
// 2026-04-04 15:00 UTC and 2026-10-03 15:30 UTC: half an hour back, and forward.
constexpr std::int64_t lord_howe_back = 1775314800, lord_howe_forward = 1791041400;
const Zone lord_howe{11 * hour,
                     {{lord_howe_back, 10 * hour + 1800}, {lord_howe_forward, 11 * hour}}};

TEST(LocalTime, ASkippedTimeIsTheEndOfItsGap) {
    const std::int64_t two = berlin_forward + hour; // the local time at which clocks go forward
    EXPECT_EQ(instant_of_local(two - 1, berlin), berlin_forward - 1);
    EXPECT_EQ(instant_of_local(two, berlin), berlin_forward);
    EXPECT_EQ(instant_of_local(two + 1800, berlin), berlin_forward);
    EXPECT_EQ(instant_of_local(two + hour, berlin), berlin_forward);
    EXPECT_EQ(instant_of_local(two + hour + 1, berlin), berlin_forward + 1);
}

TEST(LocalTime, ARepeatedTimeIsItsFirst) {
    const std::int64_t three = berlin_back + 2 * hour; // shown for the first time an hour before
    EXPECT_EQ(instant_of_local(three - 1800, berlin), berlin_back - 1800);
    EXPECT_EQ(instant_of_local(three - 1, berlin), berlin_back - 1);
    EXPECT_EQ(instant_of_local(three, berlin), berlin_back + hour);
}

std::vector<std::int64_t> instants(const char *cron, const Zone &zone, std::int64_t after,
                                   std::int64_t until) {
    const CronReading reading = read_cron(cron);
    EXPECT_EQ(reading.problem, CronProblem::none);
    std::vector<std::int64_t> found;
    for (auto at = next_instant(reading.cron, zone, after); at && *at <= until;
         at = next_instant(reading.cron, zone, *at))
        found.push_back(*at - after);
    return found;
}

using Instants = std::vector<std::int64_t>;

TEST(LocalTime, SkippedFixedTimesAreOneRunAfterTheGap) {
    const std::int64_t begin = berlin_forward - hour; // 1:00
    EXPECT_EQ(instants("30 2 * * *", berlin, begin, begin + 4 * hour), Instants{hour});
    EXPECT_EQ(instants("0-59/20 2 * * *", berlin, begin, begin + 4 * hour), Instants{hour});
    EXPECT_EQ(instants("*/20 30 2 * * *", berlin, begin, begin + 4 * hour), Instants{hour});
    EXPECT_EQ(instants("0 0-23 * * *", berlin, begin, begin + 3 * hour),
              (Instants{hour, 2 * hour, 3 * hour}));
    const std::int64_t half = lord_howe_forward - hour; // 1:00
    EXPECT_EQ(instants("0-59/10 2 * * *", lord_howe, half, half + 3 * hour),
              (Instants{hour, hour + 600, hour + 1200}));
}

TEST(LocalTime, RepeatedFixedTimesRunAtTheirFirst) {
    const std::int64_t begin = berlin_back - 2 * hour; // 1:00
    EXPECT_EQ(instants("30 2 * * *", berlin, begin, begin + 6 * hour), Instants{hour + 1800});
    EXPECT_EQ(instants("0 0-23 * * *", berlin, begin, begin + 4 * hour),
              (Instants{hour, 3 * hour, 4 * hour}));
    EXPECT_EQ(instants("*/30 30 2 * * *", berlin, begin, begin + 6 * hour),
              (Instants{hour + 1800, hour + 1830}));
    const std::int64_t half = lord_howe_back - 1800; // 1:30, which is shown again in half an hour
    EXPECT_EQ(instants("0-59/15 1-2 * * *", lord_howe, half, half + 2 * hour),
              (Instants{900, hour, hour + 900, hour + 1800, hour + 2700}));
    // From inside of what is shown for the second time.
    EXPECT_EQ(instants("0-59/15 0-23 * * *", berlin, berlin_back + 1, berlin_back + hour),
              Instants{hour - 1});
}

TEST(LocalTime, SkippedTimesOfAnIntervalDoNotRun) {
    const std::int64_t begin = berlin_forward - hour; // 1:00
    EXPECT_EQ(instants("*/20 2 * * *", berlin, begin, begin + 4 * hour), Instants{});
    EXPECT_EQ(instants("*,30 2 * * *", berlin, begin, begin + 4 * hour), Instants{});
    EXPECT_EQ(instants("30 * * * *", berlin, begin, begin + 2 * hour),
              (Instants{1800, hour + 1800}));
    EXPECT_EQ(instants("0 */2 * * *", berlin, begin, begin + 3 * hour), Instants{2 * hour});
    EXPECT_EQ(instants("@hourly", berlin, begin, begin + 3 * hour),
              (Instants{hour, 2 * hour, 3 * hour}));
    const std::int64_t half = lord_howe_forward - hour; // 1:00
    EXPECT_EQ(instants("*/10 2 * * *", lord_howe, half, half + 3 * hour),
              (Instants{hour, hour + 600, hour + 1200}));
    EXPECT_EQ(instants("0 * * * *", lord_howe, half, half + 2 * hour),
              (Instants{hour + 1800})); // at 2:00 the clocks show 2:30
}

TEST(LocalTime, RepeatedTimesOfAnIntervalRunEachTime) {
    const std::int64_t begin = berlin_back - 2 * hour; // 1:00
    EXPECT_EQ(instants("*/30 2 * * *", berlin, begin, begin + 6 * hour),
              (Instants{hour, hour + 1800, 2 * hour, 2 * hour + 1800}));
    EXPECT_EQ(instants("30 */2 * * *", berlin, begin, begin + 4 * hour),
              (Instants{hour + 1800, 2 * hour + 1800}));
    EXPECT_EQ(instants("@hourly", berlin, begin, begin + 4 * hour),
              (Instants{hour, 2 * hour, 3 * hour, 4 * hour}));
    const std::int64_t half = lord_howe_back - 1800; // 1:30, which is shown again in half an hour
    EXPECT_EQ(instants("*/15 1-2 * * *", lord_howe, half, half + hour),
              (Instants{900, 1800, 2700, hour}));
    // The first of what is shown for the second time, also for one who asks from there.
    EXPECT_EQ(instants("* * * * *", berlin, berlin_back - 1, berlin_back + 61), (Instants{1, 61}));
    EXPECT_EQ(instants("*/15 * * * *", berlin, berlin_back, berlin_back + hour),
              (Instants{900, 1800, 2700, hour}));
}

TEST(LocalTime, ASkippedDay) {
    // 2011-12-30 10:00 UTC: the clocks of Apia go from the end of the 29th to the 31st.
    constexpr std::int64_t gap = 1325239200;
    const Zone apia{-10 * hour, {{gap, 14 * hour}}};
    EXPECT_EQ(instants("30 8 * * *", apia, gap - hour, gap + 9 * hour),
              (Instants{hour, hour + 8 * hour + 1800}));
    EXPECT_EQ(instants("0 */12 * * *", apia, gap - hour, gap + 12 * hour),
              (Instants{hour, 13 * hour}));
    EXPECT_EQ(instants("* * 30 12 *", apia, gap - 60, gap + 360 * 86400), Instants{});
    EXPECT_EQ(instants("0-59 0-23 30 12 *", apia, gap - 60, gap + 360 * 86400), Instants{60});
}

/// What a clock shows at each minute decides, by a search.
TEST(LocalTime, AgreesWithAClockThatIsWatched) {
    std::mt19937 random{20261025};
    constexpr std::int64_t end = 20 * 86400;
    for (int round = 0; round < 50; ++round) {
        Zone zone{static_cast<std::int64_t>(random() % 56) * 1800 - 14 * hour, {}};
        for (std::int64_t at = 86400; at < end;
             at += static_cast<std::int64_t>(2 * 86400 + random() % (6 * 1440) * 60))
            zone.changes.push_back(
                {at, static_cast<std::int64_t>(random() % 56) * 1800 - 14 * hour});
        std::map<std::int64_t, std::int64_t> first_shown; // local time, instant
        for (std::int64_t at = -3 * 86400; at < end + 3 * 86400; at += 60)
            first_shown.emplace(at + zone.change_after(at).offset, at);
        std::int64_t last = INT64_MIN;
        for (std::int64_t local = 0; local < end; local += 60) {
            std::int64_t expected = INT64_MAX; // when a clock shows it, or first shows a later time
            if (const auto shown = first_shown.find(local); shown != first_shown.end())
                expected = shown->second;
            else
                for (const Zone::Change &change : zone.changes)
                    if (change.at + change.offset > local &&
                        change.at + zone.change_after(change.at - 1).offset <= local)
                        expected = std::min(expected, change.at);
            const std::int64_t found = instant_of_local(local, zone);
            ASSERT_EQ(found, expected) << "local time " << local << ", round " << round;
            ASSERT_GE(found, last);
            last = found;
        }
    }
}

/// An interval runs whenever a clock shows one of its times, by a search.
TEST(LocalTime, AnIntervalAgreesWithAClockThatIsWatched) {
    std::mt19937 random{20110130};
    constexpr std::int64_t end = 12 * 86400;
    for (int round = 0; round < 50; ++round) {
        Zone zone{static_cast<std::int64_t>(random() % 56) * 1800 - 14 * hour, {}};
        for (std::int64_t at = 86400; at < end;
             at += static_cast<std::int64_t>(600 + random() % (3 * 1440) * 60))
            zone.changes.push_back(
                {at, static_cast<std::int64_t>(random() % 56) * 1800 - 14 * hour});
        const int hours = static_cast<int>(random() % 24),
                  minutes = static_cast<int>(random() % 60);
        for (const std::string &text :
             {std::to_string(minutes) + " * * * *", "*/7 " + std::to_string(hours) + " * * *",
              std::to_string(minutes) + " */5 */2 * *"}) {
            const Cron cron = read_cron(text).cron;
            std::vector<std::int64_t> expected;
            for (std::int64_t at = 60; at <= end; at += 60) {
                const std::int64_t local = at + zone.change_after(at).offset;
                if (cron.next(local - 1) == local)
                    expected.push_back(at);
            }
            EXPECT_EQ(instants(text.c_str(), zone, 0, end), expected)
                << text << ", round " << round;
        }
    }
}

} // namespace
} // namespace stacksaga::core
