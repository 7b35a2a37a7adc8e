// Windows: alignment on both sides of the epoch, and at the ends of time.
#include "core/ring/window.hpp"

#include <gtest/gtest.h>

#include <random>

namespace stacksaga::core::window {
namespace {

constexpr std::int64_t second = 1'000'000, minute = 60 * second;
constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();

TEST(Window, HoldsTheInstantsFromItsStartOn) {
    EXPECT_EQ(align(0, minute), 0);
    EXPECT_EQ(align(1, minute), 0);
    EXPECT_EQ(align(minute - 1, minute), 0);
    EXPECT_EQ(align(minute, minute), minute);
    EXPECT_EQ(index_of(minute, minute), 1);
    EXPECT_EQ(start_of(1, minute), minute);
    EXPECT_EQ(next_start(0, minute), minute);
    EXPECT_EQ(next_start(minute - 1, minute), minute);
    EXPECT_EQ(next_start(minute, minute), 2 * minute);
}

TEST(Window, BeforeTheEpochRoundsDownToo) {
    EXPECT_EQ(align(-1, minute), -minute);
    EXPECT_EQ(align(-minute, minute), -minute);
    EXPECT_EQ(align(-minute - 1, minute), -2 * minute);
    EXPECT_EQ(index_of(-1, minute), -1);
    EXPECT_EQ(index_of(-minute, minute), -1);
    EXPECT_EQ(next_start(-1, minute), 0);
    EXPECT_EQ(next_start(-minute, minute), 0);
}

TEST(Window, StartsAreAligned) {
    EXPECT_TRUE(is_aligned(0, minute));
    EXPECT_TRUE(is_aligned(-minute, minute));
    EXPECT_FALSE(is_aligned(1, minute));
    EXPECT_FALSE(is_aligned(-1, minute));
    std::mt19937_64 random(5);
    for (int i = 0; i < 100000; ++i) {
        const auto now = static_cast<std::int64_t>(random() >> 2) * (i % 2 == 0 ? 1 : -1);
        const auto length = static_cast<std::int64_t>(1 + random() % (86'400 * second));
        const std::int64_t start = align(now, length);
        ASSERT_TRUE(is_aligned(start, length));
        ASSERT_LE(start, now);
        ASSERT_LT(now, start + length);
        ASSERT_EQ(next_start(now, length), start + length);
        ASSERT_EQ(start_of(index_of(now, length), length), start);
    }
}

TEST(Window, FollowsUtcWhateverTheClocksOfPeopleDo) {
    // 2026-03-29 01:00 UTC, when clocks in Europe leap to 03:00: 9584 days and an hour.
    const std::int64_t leap = (std::int64_t{9584} * 24 + 1) * 60 * minute;
    EXPECT_EQ(align(leap - 1, minute), leap - minute);
    EXPECT_EQ(align(leap, minute), leap);
    EXPECT_EQ(next_start(leap - 1, minute), leap);
    EXPECT_TRUE(is_aligned(unix_epoch_us, minute)); // whole minutes are whole in both epochs
}

TEST(Window, IsPublishedItsLeadBefore) {
    EXPECT_EQ(publish_instant(minute, 30 * second), 30 * second);
    EXPECT_EQ(publish_instant(0, 30 * second), -30 * second);
    EXPECT_EQ(publish_instant(-minute, 0), -minute);
}

TEST(Window, StaysAtTheEndsOfTime) {
    EXPECT_EQ(align(lowest, minute), lowest);
    EXPECT_EQ(next_start(highest, minute), highest);
    EXPECT_EQ(align(highest, 1), highest);
    EXPECT_EQ(align(lowest, 1), lowest);
    EXPECT_EQ(start_of(highest, minute), highest);
    EXPECT_EQ(start_of(lowest, minute), lowest);
    EXPECT_EQ(publish_instant(lowest, minute), lowest);
    EXPECT_EQ(publish_instant(highest, -minute), highest);
}

TEST(Window, IsAcceptedWhileItIsNotOver) {
    EXPECT_EQ(accept(minute, minute, 0, 10 * minute), Acceptance::accepted);
    EXPECT_EQ(accept(minute + 1, minute, 0, 10 * minute), Acceptance::not_aligned);
    EXPECT_EQ(accept(0, minute, minute - 1, 10 * minute), Acceptance::accepted);
    EXPECT_EQ(accept(0, minute, minute, 10 * minute), Acceptance::over);
    EXPECT_EQ(accept(10 * minute, minute, 0, 10 * minute), Acceptance::accepted);
    EXPECT_EQ(accept(11 * minute, minute, 0, 10 * minute), Acceptance::too_far_ahead);
    EXPECT_EQ(accept(highest, 1, 0, minute), Acceptance::over); // its end passes the end of time
    EXPECT_EQ(accept(highest - 1, 1, lowest, minute), Acceptance::too_far_ahead);
}

} // namespace
} // namespace stacksaga::core::window
