// Sessions that have promised to claim, counted in words of shared memory by periods of time.
#include "core/work/promise_count.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

constexpr std::uint16_t tag = 7, other_tag = 8;
constexpr std::uint32_t period = 100;

std::uint64_t word_with(int count) {
    std::uint64_t word = 0;
    for (int i = 0; i < count; ++i)
        word = PromiseCount::added(word, period, tag).value();
    return word;
}

TEST(PromiseCount, CountsThoseOfAPeriodAndTakesThemOff) {
    const std::uint64_t two = word_with(2);
    EXPECT_EQ(PromiseCount::counted(two, period, tag), 2U);
    const std::uint64_t one = PromiseCount::removed(two, period, tag).value();
    EXPECT_EQ(PromiseCount::counted(one, period, tag), 1U);
    const std::uint64_t none = PromiseCount::removed(one, period, tag).value();
    EXPECT_FALSE(PromiseCount::removed(none, period, tag)) << "more than were added";
}

TEST(PromiseCount, ForgetsWhatIsSomePeriodsPast) {
    const std::uint64_t word = word_with(1);
    EXPECT_EQ(PromiseCount::counted(word, period + 2, tag), 1U);
    EXPECT_EQ(PromiseCount::counted(word, period + 3, tag), 0U);
    EXPECT_EQ(PromiseCount::counted(word, period - 1, tag), 0U) << "of a file that outlived a boot";
    const std::uint64_t next = PromiseCount::added(word, period + 4, tag).value();
    EXPECT_EQ(PromiseCount::counted(next, period + 4, tag), 1U) << "the word begins again";
    EXPECT_FALSE(PromiseCount::removed(next, period, tag)) << "which is not that of the claim";
}

TEST(PromiseCount, CountsNothingForAnotherQueue) {
    const std::uint64_t word = word_with(1);
    EXPECT_EQ(PromiseCount::counted(word, period, other_tag), 0U);
    EXPECT_FALSE(PromiseCount::added(word, period, other_tag));
    EXPECT_FALSE(PromiseCount::removed(word, period, other_tag));
    EXPECT_TRUE(PromiseCount::added(word, period + 4, other_tag));
}

TEST(PromiseCount, IsFullBeforeItsNumberWouldWrapAround) {
    EXPECT_FALSE(PromiseCount::added(word_with(UINT16_MAX), period, tag));
}

} // namespace
} // namespace stacksaga::core
