// Goal: what is spread is due at even distances within the spread, whatever their number.
#include "core/work/spread.hpp"

#include <gtest/gtest.h>

namespace stacksaga::core {
namespace {

TEST(Spread, TheFirstIsDueAtOnceAndTheLastBeforeTheEnd) {
    for (const std::int64_t count : {1, 2, 3, 7, 600, 10'000})
        for (const std::int64_t spread : {std::int64_t{0}, std::int64_t{1}, std::int64_t{5},
                                          std::int64_t{600'000'000}, spread_max}) {
            EXPECT_EQ(spread_delay(spread, 0, count), 0);
            EXPECT_LE(spread_delay(spread, count - 1, count), spread);
            EXPECT_TRUE(spread == 0 || spread_delay(spread, count - 1, count) < spread);
        }
}

TEST(Spread, TheDistancesDifferByNoMoreThanAMicrosecond) {
    for (const std::int64_t count : {1, 2, 3, 7, 600, 10'000})
        for (const std::int64_t spread : {std::int64_t{5}, std::int64_t{600'000'000}, spread_max})
            for (std::int64_t i = 1; i < count; ++i) {
                const std::int64_t distance =
                    spread_delay(spread, i, count) - spread_delay(spread, i - 1, count);
                EXPECT_GE(distance, spread / count);
                EXPECT_LE(distance, (spread / count) + 1);
            }
}

} // namespace
} // namespace stacksaga::core
