#include "core/common/retry_budget.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace stacksaga::core {
namespace {

constexpr std::int64_t second = 1'000'000;
constexpr std::int64_t start = 1'000'000 * second; // a steady clock begins anywhere

int admitted(RetryBudget &budget, std::int64_t now, int asked, double fraction = 1) {
    int count = 0;
    for (int i = 0; i < asked; ++i)
        count += budget.admit(now, fraction) ? 1 : 0;
    return count;
}

TEST(RetryBudget, LetsTenASecondThroughWithoutAnyFirstAttempt) {
    RetryBudget budget;
    for (int i = 0; i < 20; ++i)
        EXPECT_EQ(admitted(budget, start + i * second, 1000), 10) << i;
}

TEST(RetryBudget, TheFirstSecondIsNoException) {
    RetryBudget budget;
    EXPECT_EQ(admitted(budget, start, 1000), 10);
    EXPECT_EQ(admitted(budget, start, 1000), 0);
}

TEST(RetryBudget, DoesNotSaveUpQuietSeconds) {
    RetryBudget budget;
    EXPECT_EQ(admitted(budget, start, 1000), 10);
    EXPECT_EQ(admitted(budget, start + 3600 * second, 1000), 10);
}

TEST(RetryBudget, FirstAttemptsPayForTheirShareOfRetries) {
    RetryBudget budget;
    admitted(budget, start, 1000);
    for (int i = 0; i < 500; ++i)
        budget.count_first_attempt(start, 0.2);
    EXPECT_EQ(admitted(budget, start, 1000), 100);
}

TEST(RetryBudget, OfAThousandFirstAttemptsASecondAFifthIsRetried) {
    RetryBudget budget;
    int retries = 0;
    for (int ms = 0; ms < 60'000; ++ms) { // all fail, and each failure asks for a retry
        budget.count_first_attempt(start + ms * 1000, 0.2);
        retries += admitted(budget, start + ms * 1000, 5);
    }
    EXPECT_NEAR(retries, 60'000 * 0.2 + 60 * 10, 60'000 * 0.2 * 0.02 + 10);
}

TEST(RetryBudget, FirstAttemptsAreForgotten) {
    RetryBudget budget;
    admitted(budget, start, 1000);
    for (int i = 0; i < 5000; ++i)
        budget.count_first_attempt(start, 0.2);
    EXPECT_EQ(admitted(budget, start + 60 * second, 100'000), 10);
}

TEST(RetryBudget, AFractionOfTheWorkIsGivenThatFraction) {
    RetryBudget budget;
    int retries = 0;
    for (int i = 0; i < 1000; ++i)
        retries += admitted(budget, start + i * second / 10, 1000, 0.25);
    EXPECT_NEAR(retries, 100 * 10 * 0.25, 3);
}

TEST(RetryBudget, ATinyFractionStillLetsSomeThrough) {
    RetryBudget budget;
    int retries = 0;
    for (int i = 0; i < 1000; ++i)
        retries += admitted(budget, start + i * second, 1000, 1.0 / 256);
    EXPECT_NEAR(retries, 1000 * 10.0 / 256, 2);
}

TEST(RetryBudget, AShareOfNothingLeavesTheTenASecond) {
    RetryBudget budget;
    for (int i = 0; i < 1000; ++i)
        budget.count_first_attempt(start, 0);
    EXPECT_EQ(admitted(budget, start, 1000), 10);
}

TEST(RetryBudget, AClockThatGoesBackGivesNothingAndGoesOnFromThere) {
    RetryBudget budget;
    EXPECT_EQ(admitted(budget, start, 1000), 10);
    EXPECT_EQ(admitted(budget, start - 3600 * second, 1000), 0);
    EXPECT_EQ(admitted(budget, start - 3599 * second, 1000), 10);
    budget.defer(start, 1, 0.5);
    EXPECT_LE(budget.defer(start - 3600 * second, 1, 0.5), deferral_max_us);
}

TEST(RetryBudget, DeferredRetriesStandInALineAsFarApartAsTheyAreLetThrough) {
    RetryBudget budget;
    std::vector<int> per_ten_seconds(40);
    for (int i = 0; i < 2000; ++i)
        ++per_ten_seconds[static_cast<size_t>(budget.defer(start, 1, 0.5) / (10 * second))];
    for (size_t i = 0; i < 20; ++i) // 200 seconds at ten a second
        EXPECT_NEAR(per_ten_seconds[i], 100, 2) << i;
    EXPECT_EQ(per_ten_seconds[21], 0);
}

TEST(RetryBudget, ADeferralIsNeitherShortNorEndless) {
    RetryBudget budget;
    for (int i = 0; i < 100'000; ++i) {
        const std::int64_t wait = budget.defer(start, 0, i % 2 == 0 ? 0 : 0.999999);
        ASSERT_GE(wait, deferral_min_us * 8 / 10);
        ASSERT_LE(wait, deferral_max_us * 12 / 10);
    }
}

} // namespace
} // namespace stacksaga::core
