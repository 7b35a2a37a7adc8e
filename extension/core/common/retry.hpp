// When a failed attempt is tried again: capped exponential backoff with jitter. Intervals are in
// microseconds. The delay before attempt n+1 is
//     min(max_interval, initial_interval * multiplier^(n-1)) * (1 +- jitter)
// and it saturates: no policy and no attempt overflows or gives NaN.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

namespace stacksaga::core {

struct RetryPolicy {
    std::int32_t max_attempts = 10;               ///< 0: no limit
    std::int64_t initial_interval_us = 1'000'000; ///< 0: at once
    std::int64_t max_interval_us = 300'000'000;   ///< not below initial_interval_us
    double multiplier = 2;                        ///< 1..retry_multiplier_max
    double jitter = 0.2;                          ///< 0..1, a share of the delay either way
    friend constexpr bool operator==(const RetryPolicy &, const RetryPolicy &) = default;
};

inline constexpr double retry_multiplier_max = 1000;

/// The first field of a policy that is out of range.
enum class PolicyField { none, max_attempts, initial_interval, multiplier, max_interval, jitter };

/// Comparisons are written so that NaN fails them.
constexpr PolicyField validate(const RetryPolicy &policy) {
    if (policy.max_attempts < 0)
        return PolicyField::max_attempts;
    if (policy.initial_interval_us < 0)
        return PolicyField::initial_interval;
    if (!(policy.multiplier >= 1 && policy.multiplier <= retry_multiplier_max))
        return PolicyField::multiplier;
    if (policy.max_interval_us < policy.initial_interval_us)
        return PolicyField::max_interval;
    if (!(policy.jitter >= 0 && policy.jitter <= 1))
        return PolicyField::jitter;
    return PolicyField::none;
}

/// The field's name as users write it.
constexpr std::string_view name_of(PolicyField field) {
    switch (field) {
    case PolicyField::none:
        return "";
    case PolicyField::max_attempts:
        return "max_attempts";
    case PolicyField::initial_interval:
        return "initial_interval";
    case PolicyField::multiplier:
        return "multiplier";
    case PolicyField::max_interval:
        return "max_interval";
    case PolicyField::jitter:
        return "jitter";
    }
    return "";
}

/// The condition of the field: the end of a sentence that begins with its name.
constexpr std::string_view rule_of(PolicyField field) {
    switch (field) {
    case PolicyField::none:
        return "is in range";
    case PolicyField::max_attempts:
        return "must be 0 (no limit) or more";
    case PolicyField::initial_interval:
        return "must not be negative";
    case PolicyField::multiplier:
        return "must be between 1 and 1000";
    case PolicyField::max_interval:
        return "must not be less than initial_interval";
    case PolicyField::jitter:
        return "must be between 0 and 1";
    }
    return "";
}

/// Whether the policy allows another attempt after `attempts` (1 or more) have been made.
constexpr bool may_retry(std::int64_t attempts, const RetryPolicy &policy) {
    return policy.max_attempts == 0 || attempts < policy.max_attempts;
}

namespace retry {

/// base^exponent by squaring; infinity when it is too large for a double.
constexpr double power(double base, std::uint64_t exponent) {
    double result = 1;
    for (; exponent != 0; exponent >>= 1) {
        if ((exponent & 1) != 0)
            result *= base;
        base *= base;
    }
    return result;
}

/// 1 + ratio + ... + ratio^(count-1) by doubling; infinity when it is too large for a double.
constexpr double geometric_sum(double ratio, std::uint64_t count) {
    double sum = 0, step_sum = 1; // of the terms so far, and of the next 2^i of them
    for (double step = ratio; count != 0; count >>= 1) {
        if ((count & 1) != 0)
            sum = sum * step + step_sum;
        step_sum += step_sum * step;
        step *= step;
    }
    return sum;
}

/// How many of `count` delays are below the cap: those before the first n for which
/// initial * multiplier^n reaches it.
constexpr std::uint64_t delays_below_cap(const RetryPolicy &policy, std::uint64_t count) {
    std::uint64_t low = 0, high = count;
    while (low < high) {
        const std::uint64_t middle = low + (high - low) / 2;
        const double grown =
            static_cast<double>(policy.initial_interval_us) * power(policy.multiplier, middle);
        if (grown < static_cast<double>(policy.max_interval_us))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/// `value` (not negative, not NaN) cut to an integer, at most 2^63-1.
constexpr std::int64_t saturate(double value) {
    constexpr double limit = 9223372036854775808.0; // 2^63, the first double that does not fit
    return value < limit ? static_cast<std::int64_t>(value)
                         : std::numeric_limits<std::int64_t>::max();
}

/// `value` within 0..1; NaN counts as 0.
constexpr double unit(double value) {
    if (!(value > 0))
        return 0;
    return value < 1 ? value : 1;
}

} // namespace retry

/// Microseconds to wait before attempt `attempt` (the first is 1 and does not wait), for a policy
/// that validate() accepts. `random01` in [0, 1) chooses the jitter: 0 is the shortest delay,
/// 0.5 the one without jitter.
constexpr std::int64_t delay_before(std::int64_t attempt, const RetryPolicy &policy,
                                    double random01) {
    if (attempt <= 1 || policy.initial_interval_us == 0)
        return 0;
    const double grown = static_cast<double>(policy.initial_interval_us) *
                         retry::power(policy.multiplier, static_cast<std::uint64_t>(attempt) - 2);
    // Compared as doubles, taken as integers: a capped delay is the cap to the microsecond.
    const std::int64_t delay = grown < static_cast<double>(policy.max_interval_us)
                                   ? retry::saturate(grown)
                                   : policy.max_interval_us;
    const double swing = policy.jitter * (2 * retry::unit(random01) - 1);
    return swing == 0 ? delay : retry::saturate(static_cast<double>(delay) * (1 + swing));
}

/// The longest time in microseconds from the start of the first attempt to the end of the last:
/// every attempt takes `timeout_us`, every delay is as long as jitter makes it. It saturates. For a
/// policy that validate() accepts and that has a limit (max_attempts is not 0).
constexpr std::int64_t longest_window(const RetryPolicy &policy, std::int64_t timeout_us) {
    const auto attempts = static_cast<std::uint64_t>(policy.max_attempts);
    const std::uint64_t delays = attempts - 1;
    double delay = 0;
    if (policy.initial_interval_us != 0 && delays != 0) {
        const std::uint64_t growing = retry::delays_below_cap(policy, delays);
        if (growing != 0)
            delay += static_cast<double>(policy.initial_interval_us) *
                     retry::geometric_sum(policy.multiplier, growing);
        delay +=
            static_cast<double>(policy.max_interval_us) * static_cast<double>(delays - growing);
    }
    return retry::saturate(static_cast<double>(timeout_us) * static_cast<double>(attempts) +
                           delay * (1 + policy.jitter));
}

} // namespace stacksaga::core
