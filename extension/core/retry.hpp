// When a failed attempt is tried again: capped exponential backoff with jitter. Intervals are in
// microseconds. The delay before attempt n+1 is
//     min(max_interval, initial_interval * multiplier^(n-1)) * (1 +- jitter)
// and it saturates: no policy and no attempt overflows or gives NaN.
#pragma once
#ifdef POSTGRES_H
#error "core comes before PostgreSQL headers"
#endif

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

/// What the field must be: the end of a sentence that begins with its name.
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

} // namespace stacksaga::core
