// How many retries are let through: a share of the first attempts of the last seconds, and a few a
// second whatever happens. When a service is down every call to it fails, and retries multiply the
// load that keeps it down; a budget bounds that factor for all of them together, where policies
// bound it for each.
//
// One budget belongs to one process; there is no shared counter. A process that holds a
// fraction of the work sees that fraction of the first attempts, and gets that fraction of the few
// a second.
// Two token buckets: one filled by time, one by first attempts, which leaks. The idea is that of
// Finagle's RetryBudget, with a leak instead of a window. Times are microseconds of any clock; one
// that is set back costs at most what it gave.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stacksaga::core {

/// Retries that are let through each second, whatever the share.
inline constexpr double retries_per_second = 10;
/// How long first attempts count, about.
inline constexpr std::int64_t budget_memory_us = 10'000'000;
/// How far a retry may be deferred at once.
inline constexpr std::int64_t deferral_max_us = 300'000'000;
inline constexpr std::int64_t deferral_min_us = 1'000'000;

class RetryBudget {
public:
    /// A first attempt begins; `share` is how many retries it pays for, at least 0.
    constexpr void count_first_attempt(std::int64_t now, double share) {
        advance(now, 1);
        earned_ += share;
    }

    /// Whether a retry may begin now. `fraction` of the work, 0..1, is done by this process.
    constexpr bool admit(std::int64_t now, double fraction) {
        advance(now, fraction);
        double &bucket = given_ >= 1 ? given_ : earned_;
        if (bucket < 1)
            return false;
        bucket -= 1;
        return true;
    }

    /// How long the retry that was not admitted is to wait, in microseconds. Those that are
    /// deferred stand in a line, as far apart as they will be admitted. `random01` in [0, 1)
    /// shifts it by up to a fifth either way.
    constexpr std::int64_t defer(std::int64_t now, double fraction, double random01) {
        const double rate = std::max(retries_per_second * fraction, 0.01) +
                            earned_ * 1e6 / static_cast<double>(budget_memory_us);
        line_end_ = std::max(line_end_, now) + static_cast<std::int64_t>(1e6 / rate);
        line_end_ = std::min(line_end_, now + deferral_max_us);
        const std::int64_t wait = std::max(line_end_ - now, deferral_min_us);
        return wait +
               static_cast<std::int64_t>(static_cast<double>(wait) * 0.2 * (2 * random01 - 1));
    }

private:
    /// At least one token fits, or a small fraction would never let one through.
    constexpr void advance(std::int64_t now, double fraction) {
        const double elapsed = static_cast<double>(std::max<std::int64_t>(0, now - at_));
        at_ = now;
        const double per_second = retries_per_second * fraction;
        given_ = std::min(std::max(per_second, 1.0), given_ + per_second * elapsed / 1e6);
        earned_ -= earned_ * std::min(1.0, elapsed / static_cast<double>(budget_memory_us));
    }

    std::int64_t at_ = 0;
    double given_ = 1;  ///< by time
    double earned_ = 0; ///< by first attempts
    std::int64_t line_end_ = 0;
};

} // namespace stacksaga::core
