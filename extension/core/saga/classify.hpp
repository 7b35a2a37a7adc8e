// The meaning of an SQLSTATE for the step that raised it.
#pragma once

#include "core/saga/saga_state.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

namespace stacksaga::core {

/// Retryable where neither the raised class nor the policy says otherwise: lost connections,
/// transaction rollbacks, lack of resources, a lock that was not had, a server that goes or comes.
inline constexpr std::array<std::string_view, 7> retryable_by_default{
    "08", "40", "53", "55P03", "57P01", "57P02", "57P03"};

/// Whether a policy may list it: an SQLSTATE or its class, five or two digits and upper-case
/// letters. Anything else would match nothing, ever.
constexpr bool is_state_or_class(std::string_view text) {
    return (text.size() == 5 || text.size() == 2) &&
           std::all_of(text.begin(), text.end(),
                       [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z'); });
}

/// Whether `sqlstate` is listed itself or by its class (two characters).
constexpr bool is_listed(std::string_view sqlstate, std::span<const std::string_view> list) {
    for (std::string_view entry : list)
        if (entry == sqlstate || (entry.size() == 2 && sqlstate.substr(0, 2) == entry))
            return true;
    return false;
}

/// SR is retryable (SR504: the outcome is unknown) and SG is not, whatever the policy says; then
/// never_on, then retry_on, then the default.
constexpr FailureClass classify(std::string_view sqlstate,
                                std::span<const std::string_view> retry_on,
                                std::span<const std::string_view> never_on) {
    if (sqlstate == "SR504")
        return FailureClass::unknown;
    if (sqlstate.substr(0, 2) == "SR")
        return FailureClass::retryable;
    if (sqlstate.substr(0, 2) == "SG" || is_listed(sqlstate, never_on))
        return FailureClass::non_retryable;
    if (is_listed(sqlstate, retry_on) || is_listed(sqlstate, retryable_by_default))
        return FailureClass::retryable;
    return FailureClass::non_retryable;
}

static_assert(classify("SR503", {}, {}) == FailureClass::retryable);
static_assert(classify("40001", {}, {}) == FailureClass::retryable);
static_assert(classify("23505", {}, {}) == FailureClass::non_retryable);

} // namespace stacksaga::core
