// Since when commits may bring rows that a look has not seen.
#include "core/work/commit_horizon.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

constexpr std::int64_t forgotten_us = 5'000'000;

TEST(CommitHorizon, OneLookSaysNothing) {
    CommitHorizon horizon(forgotten_us);
    EXPECT_FALSE(horizon.at());
    horizon.note(1000, {.oldest = 7, .next = 7});
    EXPECT_FALSE(horizon.at());
}

TEST(CommitHorizon, MovesToALookWhoseTransactionsHaveEnded) {
    CommitHorizon horizon(forgotten_us);
    horizon.note(1000, {.oldest = 7, .next = 10});
    horizon.note(2000, {.oldest = 9, .next = 20});
    EXPECT_FALSE(horizon.at()) << "9 goes on, and had begun by the first look";
    horizon.note(3000, {.oldest = 10, .next = 30});
    EXPECT_EQ(horizon.at(), 1000);
    horizon.note(4000, {.oldest = 29, .next = 31});
    EXPECT_EQ(horizon.at(), 1000) << "29 had begun by the look at 3000";
    horizon.note(5000, {.oldest = 30, .next = 31});
    EXPECT_EQ(horizon.at(), 3000);
}

TEST(CommitHorizon, ForgetsWhatIsLongPast) {
    CommitHorizon horizon(forgotten_us);
    horizon.note(1000, {.oldest = 7, .next = 10});
    horizon.note(2000, {.oldest = 10, .next = 11});
    EXPECT_EQ(horizon.at(), 1000);
    horizon.note(2001 + forgotten_us, {.oldest = 11, .next = 12});
    EXPECT_FALSE(horizon.at());
    horizon.note(2002 + forgotten_us, {.oldest = 12, .next = 12});
    EXPECT_EQ(horizon.at(), 2001 + forgotten_us);
}

TEST(CommitHorizon, ForgetsWhatAClockThatWasSetBackSaid) {
    CommitHorizon horizon(forgotten_us);
    horizon.note(1000, {.oldest = 7, .next = 10});
    horizon.note(2000, {.oldest = 10, .next = 11});
    horizon.note(500, {.oldest = 12, .next = 12});
    EXPECT_FALSE(horizon.at());
}

TEST(CommitHorizon, ComparesIdsThatWrappedAround) {
    CommitHorizon horizon(forgotten_us);
    horizon.note(1000, {.oldest = 4'294'967'290, .next = 4'294'967'295});
    horizon.note(2000, {.oldest = 4'294'967'294, .next = 5});
    EXPECT_FALSE(horizon.at());
    horizon.note(3000, {.oldest = 4, .next = 6});
    EXPECT_EQ(horizon.at(), 1000);
}

} // namespace
} // namespace stacksaga::core
