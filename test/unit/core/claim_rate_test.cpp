// A rate bounds the claims in any window of its interval.
#include "core/queue/claim_rate.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace stacksaga::core {
namespace {

constexpr std::int64_t interval = 1'000'000;

TEST(ClaimWindow, IsFreeAgainAnIntervalLater) {
    ClaimWindow window;
    EXPECT_EQ(window.left(0, 5, interval), 5);
    window.note(0, 3, interval);
    window.note(400'000, 2, interval);
    EXPECT_EQ(window.left(999'999, 5, interval), 0);
    EXPECT_EQ(window.next(999'999, 5, interval), 1'000'000);
    EXPECT_EQ(window.left(1'000'000, 5, interval), 3);
    EXPECT_EQ(window.next(1'000'000, 5, interval), 1'000'000);
    EXPECT_EQ(window.left(1'400'000, 5, interval), 5);
}

TEST(ClaimWindow, ALoweredRateWaitsForAsManyAsItTakes) {
    ClaimWindow window;
    window.note(0, 3, interval);
    window.note(100, 3, interval);
    EXPECT_EQ(window.left(200, 3, interval), 0);
    EXPECT_EQ(window.next(200, 3, interval), 100 + interval);
    EXPECT_EQ(window.next(200, 4, interval), interval);
}

TEST(ClaimWindow, AClockThatIsSetBackCountsAsNow) {
    ClaimWindow window;
    window.note(5'000'000, 5, interval);
    EXPECT_EQ(window.left(1'000'000, 5, interval), 0);
    EXPECT_EQ(window.next(1'000'000, 5, interval), 2'000'000);
    window.note(1'000'000, 0, interval);
    EXPECT_EQ(window.left(2'000'000, 5, interval), 5);
}

/// The most claims in any window.
std::int64_t most_in_a_window(const std::vector<ClaimsAt> &claims) {
    std::int64_t most = 0;
    for (std::size_t first = 0; first < claims.size(); ++first) {
        std::int64_t sum = 0;
        for (std::size_t i = first; i < claims.size() && claims[i].at < claims[first].at + interval;
             ++i)
            sum += claims[i].count;
        most = std::max(most, sum);
    }
    return most;
}

TEST(ClaimWindow, NoWindowHoldsMoreHoweverManyClaims) {
    std::mt19937_64 random(3);
    for (const std::int64_t limit : {1, 7, 100, 5000}) {
        for (const std::int64_t step : {100, 5'000, 300'000}) {
            ClaimWindow window;
            std::vector<ClaimsAt> claims;
            std::int64_t now = 0;
            std::int64_t total = 0;
            for (int i = 0; i < 3000; ++i) {
                now += 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(step));
                const std::int64_t wanted = 1 + static_cast<std::int64_t>(random() % 20);
                const std::int64_t count = std::min(wanted, window.left(now, limit, interval));
                if (count == 0)
                    continue;
                window.note(now, count, interval);
                claims.push_back({.at = now, .count = count});
                total += count;
            }
            EXPECT_LE(most_in_a_window(claims), limit);
            // And what is merged costs little of it.
            const std::int64_t demand = 3000 * 21 / 2;
            const std::int64_t supply = limit * (now / interval);
            EXPECT_GE(total * 10, std::min(demand, supply) * 8) << limit << " " << step;
        }
    }
}

TEST(ClaimWindow, ReadBackItIsTheSame) {
    ClaimWindow window;
    for (int i = 0; i < 200; ++i)
        window.note(i * 5'000, 2, interval);
    ClaimWindow copy;
    for (const ClaimsAt &e : window.entries())
        copy.load(e.at, e.count);
    for (std::int64_t now = 995'000; now < 2'500'000; now += 7'000)
        EXPECT_EQ(copy.left(now, 1000, interval), window.left(now, 1000, interval));
}

} // namespace
} // namespace stacksaga::core
