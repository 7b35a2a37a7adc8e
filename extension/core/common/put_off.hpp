// Items that could not be read or handed out, by an error that may pass: how often each of them is
// put off, and for how long. The row of the item counts, so that all processes share one count.
#pragma once

#include "core/common/retry.hpp"

#include <cstdint>

namespace stacksaga::core {

inline constexpr std::int32_t put_offs_max = 3;

/// Whether an item that was put off `times` in a row may be put off once more.
constexpr bool may_be_put_off(std::int32_t times) {
    return times < put_offs_max;
}

/// For how long, in microseconds: a second, and twice as long each time, up to a minute.
constexpr std::int64_t put_off_us(std::int32_t times, double random01) {
    constexpr RetryPolicy pauses{.max_attempts = 0,
                                 .initial_interval_us = 1'000'000,
                                 .max_interval_us = 60'000'000,
                                 .multiplier = 2,
                                 .jitter = 0.2};
    return delay_before(std::int64_t{times} + 2, pauses, random01);
}

} // namespace stacksaga::core
