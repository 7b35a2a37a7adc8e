// Spread: what an operator brings back at once falls due evenly over a while, the first at once and
// the last before its end.
#pragma once

#include <cstdint>

namespace stacksaga::core {

/// Seven days: items that should wait longer are brought back later.
inline constexpr std::int64_t spread_max = std::int64_t{7} * 24 * 3600 * 1'000'000;

/// How many microseconds after the first one the one with the number `i` (from 0) of `count` is
/// due.
constexpr std::int64_t spread_delay(std::int64_t spread, std::int64_t i, std::int64_t count) {
    return (spread / count * i) + (spread % count * i / count);
}
static_assert(spread_delay(spread_max, 9'999'999, 10'000'000) < spread_max);

} // namespace stacksaga::core
