// Goal: an instant stays one that a timestamptz can hold, whatever is added. Method: the borders.
#include "core/time/instant.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

TEST(Instant, StaysWithinWhatATimestamptzHolds) {
    EXPECT_EQ(time_plus(7, 5), 12);
    EXPECT_EQ(time_plus(7, -8), -1);
    EXPECT_EQ(time_plus(last_instant - 1, 1), last_instant);
    EXPECT_EQ(time_plus(last_instant, 1), last_instant);
    EXPECT_EQ(time_plus(last_instant, INT64_MAX), last_instant);
    EXPECT_EQ(time_plus(first_instant, -1), first_instant);
    EXPECT_EQ(time_plus(first_instant, INT64_MIN), first_instant);
}

TEST(Instant, NeverIsLaterThanAnyInstantAndIsNotReachedByAdding) {
    EXPECT_GT(never, last_instant);
    EXPECT_EQ(time_plus(never, 0), last_instant);
    EXPECT_EQ(time_plus(0, never), last_instant);
}

} // namespace
} // namespace stacksaga::core
