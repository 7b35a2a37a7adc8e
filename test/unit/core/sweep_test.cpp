// Sweeps: when they begin, whose slots they take, and how many.
#include "core/ring/sweep.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <vector>

namespace stacksaga::core::sweep {
namespace {

struct Found {
    std::int32_t slot;
};

std::vector<Found> first_slots(std::int32_t count) {
    std::vector<Found> found;
    for (std::int32_t slot = 0; slot < count; ++slot)
        found.push_back({slot});
    return found;
}

std::vector<std::int32_t> chosen(Incarnation node, std::vector<Found> found, std::int64_t slots,
                                 std::int64_t takers, std::int64_t held) {
    const std::size_t count = choose(std::span(found), node, slots, takers, held);
    std::vector<std::int32_t> result;
    for (std::size_t i = 0; i < count; ++i)
        result.push_back(found[i].slot);
    return result;
}

TEST(Sweep, BeginsWhenTwoWindowsWereMissed) {
    EXPECT_FALSE(is_uncoordinated(100, 0, 10, 119));
    EXPECT_TRUE(is_uncoordinated(100, 0, 10, 120));
    EXPECT_FALSE(is_uncoordinated(100, 110, 10, 129)); // counted from a later registration
    EXPECT_TRUE(is_uncoordinated(100, 110, 10, 130));
    constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();
    EXPECT_FALSE(is_uncoordinated(highest - 1, 0, 10, 120));
}

TEST(Sweep, SparesTheLivingAndWaitsForTheDelay) {
    RingSettings settings;
    settings.rebalance_delay = 5;
    EXPECT_TRUE(spares(settings.dead_after + 4, settings));
    EXPECT_FALSE(spares(settings.dead_after + 5, settings));
}

TEST(Sweep, TakesNoMoreThanTheEqualShare) {
    EXPECT_EQ(chosen(1, first_slots(64), 64, 8, 3).size(), 5U);
    EXPECT_TRUE(chosen(1, first_slots(64), 64, 8, 8).empty());
    EXPECT_TRUE(chosen(1, first_slots(64), 64, 8, 60).empty());
    EXPECT_EQ(chosen(1, first_slots(2), 64, 8, 3).size(), 2U);
}

TEST(Sweep, TakesAFewAtATime) {
    EXPECT_EQ(chosen(1, first_slots(64), 64, 1, 0).size(), 16U);
    EXPECT_EQ(chosen(1, first_slots(256), 256, 1, 0).size(), 32U);
}

TEST(Sweep, TakesInAscendingOrderAndOtherSlotsForOtherNodes) {
    const auto mine = chosen(1, first_slots(256), 256, 1, 0);
    const auto others = chosen(2, first_slots(256), 256, 1, 0);
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
    EXPECT_NE(mine, others);
    std::set<std::uint64_t> ranks;
    for (std::int32_t slot = 0; slot < 256; ++slot)
        ranks.insert(rank(1, slot));
    EXPECT_EQ(ranks.size(), 256U);
}

} // namespace
} // namespace stacksaga::core::sweep
