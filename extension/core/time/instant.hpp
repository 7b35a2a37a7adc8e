// Instants are microseconds, as a timestamptz counts them.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stacksaga::core {

/// The instant 'infinity': work that is due then is never due.
inline constexpr std::int64_t never = INT64_MAX;

/// The first and the last instant that a timestamptz can hold.
inline constexpr std::int64_t first_instant = -211'813'488'000'000'000;
inline constexpr std::int64_t last_instant = 9'223'371'331'199'999'999;

/// The instant this much later, limited to the range of a timestamptz.
constexpr std::int64_t time_plus(std::int64_t instant, std::int64_t microseconds) {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(instant, microseconds, &sum))
        return microseconds > 0 ? last_instant : first_instant;
    return std::clamp(sum, first_instant, last_instant);
}

} // namespace stacksaga::core
