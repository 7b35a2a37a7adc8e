// Retry policies: what is refused, and that no delay leaves its bounds.
#include "core/common/retry.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace stacksaga::core {
namespace {

constexpr std::int64_t second = 1'000'000;
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double no_jitter = 0.5;

TEST(Retry, DoublesUpToTheCap) {
    const RetryPolicy policy{};
    ASSERT_EQ(validate(policy), PolicyField::none);
    EXPECT_EQ(delay_before(1, policy, no_jitter), 0);
    EXPECT_EQ(delay_before(2, policy, no_jitter), 1 * second);
    EXPECT_EQ(delay_before(3, policy, no_jitter), 2 * second);
    EXPECT_EQ(delay_before(4, policy, no_jitter), 4 * second);
    EXPECT_EQ(delay_before(10, policy, no_jitter), 256 * second);
    EXPECT_EQ(delay_before(11, policy, no_jitter), 300 * second);
    EXPECT_EQ(delay_before(10000, policy, no_jitter), 300 * second);
}

TEST(Retry, JitterSwingsBothWays) {
    const RetryPolicy policy{.jitter = 0.25};
    EXPECT_EQ(delay_before(2, policy, 0), 750'000);
    EXPECT_EQ(delay_before(2, policy, 0.5), 1'000'000);
    EXPECT_EQ(delay_before(2, policy, 0.75), 1'125'000);
    EXPECT_EQ(delay_before(2, policy, 1), 1'250'000);
    EXPECT_EQ(delay_before(20, policy, 0), 225 * second); // after the cap, as documented
    const RetryPolicy wild{.jitter = 1};
    EXPECT_EQ(delay_before(2, wild, 0), 0);
    EXPECT_EQ(delay_before(2, wild, 1), 2 * second);
    EXPECT_EQ(delay_before(2, wild, nan), 0);
    EXPECT_EQ(delay_before(2, wild, infinity), 2 * second);
}

TEST(Retry, ACappedDelayIsExact) {
    const std::int64_t odd = (std::int64_t{1} << 53) + 1; // not a double
    const RetryPolicy policy{.initial_interval_us = 1, .max_interval_us = odd};
    EXPECT_EQ(delay_before(1000, policy, no_jitter), odd);
}

TEST(Retry, NeverLeavesItsBoundsForAnyAttempt) {
    const std::vector<std::int64_t> intervals = {0, 1, second, highest / 2, highest};
    const std::vector<double> multipliers = {1, 1 + 1e-12, 1.5, 2, retry_multiplier_max};
    for (std::int64_t initial : intervals)
        for (std::int64_t max : intervals)
            for (double multiplier : multipliers) {
                const RetryPolicy policy{0, initial, max, multiplier, 0};
                if (validate(policy) != PolicyField::none)
                    continue;
                std::int64_t before = 0;
                for (std::int64_t attempt = 1; attempt <= 10000; ++attempt) {
                    const std::int64_t delay = delay_before(attempt, policy, no_jitter);
                    ASSERT_GE(delay, before);
                    ASSERT_LE(delay, max);
                    before = delay;
                }
            }
}

TEST(Retry, SaturatesWithJitterAndAnyRandomNumber) {
    const RetryPolicy policy{0, highest, highest, retry_multiplier_max, 1};
    for (std::int64_t attempt : {std::int64_t{2}, std::int64_t{10000}, highest})
        for (double random : {0.0, 0.5, 0.999, 1.0, 2.0, -1.0, nan, infinity, -infinity}) {
            const std::int64_t delay = delay_before(attempt, policy, random);
            EXPECT_GE(delay, 0);
            EXPECT_LE(delay, highest);
        }
    EXPECT_EQ(delay_before(highest, policy, 1), highest);
    EXPECT_EQ(delay_before(std::numeric_limits<std::int64_t>::min(), policy, 1), 0);
}

TEST(Retry, FollowsTheFormula) {
    const RetryPolicy policy{0, 1500, 60 * second, 1.7, 0.3};
    for (int attempt = 2; attempt <= 60; ++attempt)
        for (double random : {0.0, 0.1, 0.5, 0.9}) {
            const double base = std::min(60e6, 1500 * std::pow(1.7, attempt - 2));
            const double expected = base * (1 + 0.3 * (2 * random - 1));
            EXPECT_NEAR(static_cast<double>(delay_before(attempt, policy, random)), expected, 2);
        }
}

TEST(Retry, CountsAttempts) {
    const RetryPolicy once{.max_attempts = 1}, three{.max_attempts = 3}, endless{.max_attempts = 0};
    EXPECT_FALSE(may_retry(1, once));
    EXPECT_TRUE(may_retry(2, three));
    EXPECT_FALSE(may_retry(3, three));
    EXPECT_TRUE(may_retry(highest, endless));
}

TEST(Retry, RefusesWhatIsOutOfRangeAndNamesTheField) {
    using enum PolicyField;
    const auto field = [](auto change) {
        RetryPolicy policy{};
        change(policy);
        return validate(policy);
    };
    EXPECT_EQ(field([](auto &p) { p.max_attempts = -1; }), max_attempts);
    EXPECT_EQ(field([](auto &p) { p.max_attempts = std::numeric_limits<int>::max(); }), none);
    EXPECT_EQ(field([](auto &p) { p.initial_interval_us = -1; }), initial_interval);
    EXPECT_EQ(field([](auto &p) { p.initial_interval_us = p.max_interval_us + 1; }), max_interval);
    EXPECT_EQ(field([](auto &p) { p.max_interval_us = -1; }), max_interval);
    for (double bad : {0.0, 0.999, -2.0, 1000.1, nan, infinity, -infinity})
        EXPECT_EQ(field([&](auto &p) { p.multiplier = bad; }), multiplier) << bad;
    for (double bad : {-0.1, 1.1, nan, infinity, -infinity})
        EXPECT_EQ(field([&](auto &p) { p.jitter = bad; }), jitter) << bad;
    for (PolicyField f : {max_attempts, initial_interval, multiplier, max_interval, jitter}) {
        EXPECT_FALSE(name_of(f).empty());
        EXPECT_TRUE(rule_of(f).starts_with("must"));
    }
}

/// The definition of longest_window(), by adding up.
double summed_window(const RetryPolicy &policy, std::int64_t timeout_us) {
    double sum = 0;
    for (std::int64_t attempt = 1; attempt <= policy.max_attempts; ++attempt)
        sum += static_cast<double>(timeout_us) +
               static_cast<double>(delay_before(attempt, policy, no_jitter)) * (1 + policy.jitter);
    return sum;
}

TEST(RetryWindow, IsTheSumOfItsParts) {
    EXPECT_EQ(longest_window({.max_attempts = 1}, 30 * second), 30 * second);
    EXPECT_EQ(longest_window({.max_attempts = 3, .jitter = 0}, 0), 3 * second);
    for (double multiplier : {1.0, 1.0000001, 1.5, 2.0, 1000.0})
        for (int attempts : {1, 2, 3, 10, 57, 1000})
            for (std::int64_t first : {std::int64_t{0}, std::int64_t{1}, second, 300 * second}) {
                const RetryPolicy policy{.max_attempts = attempts,
                                         .initial_interval_us = first,
                                         .multiplier = multiplier,
                                         .jitter = 0.5};
                const double expected = summed_window(policy, second);
                EXPECT_NEAR(static_cast<double>(longest_window(policy, second)), expected,
                            expected * 1e-9 + 1000)
                    << multiplier << " " << attempts << " " << first;
            }
}

TEST(RetryWindow, Saturates) {
    constexpr int most = std::numeric_limits<int>::max();
    EXPECT_EQ(longest_window({.max_attempts = most,
                              .initial_interval_us = highest,
                              .max_interval_us = highest,
                              .multiplier = 1000,
                              .jitter = 1},
                             highest),
              highest);
    // Thirty seconds and five minutes, two thousand million times, and none of it by counting.
    EXPECT_NEAR(
        static_cast<double>(longest_window({.max_attempts = most, .jitter = 0}, 30 * second)),
        330e6 * most, 1e15);
}

} // namespace
} // namespace stacksaga::core
