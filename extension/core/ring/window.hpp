// Time windows: equal stretches of time in which ownership of the ring does not change by plan.
//
// Instants and lengths are microseconds; instants count from 2000-01-01 00:00 UTC, PostgreSQL's
// epoch, for the database and the coordinator must cut time at the same places whatever the length.
// Window k is [k * length, (k + 1) * length). Time zones and their shifts play no part.
//
// An instant beyond the end of 64 bits (300,000 years away) stays at the end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace stacksaga::core {

/// The Unix epoch as an instant.
inline constexpr std::int64_t unix_epoch_us = -946'684'800'000'000;

namespace window {

__extension__ typedef __int128 int128;

constexpr std::int64_t saturate(int128 value) {
    using limits = std::numeric_limits<std::int64_t>;
    return static_cast<std::int64_t>(
        std::clamp(value, int128{limits::min()}, int128{limits::max()}));
}

/// The number of the window that holds `now`; negative before the epoch. Needs `length` > 0.
constexpr std::int64_t index_of(std::int64_t now, std::int64_t length) {
    // C++ rounds towards zero; windows before the epoch need the floor.
    return now / length - (now % length < 0 ? 1 : 0);
}

/// Where window `k` starts.
constexpr std::int64_t start_of(std::int64_t k, std::int64_t length) {
    return saturate(int128{k} * length);
}

/// The start of the window that holds `now`.
constexpr std::int64_t align(std::int64_t now, std::int64_t length) {
    return start_of(index_of(now, length), length);
}

/// Whether a window of this length starts at `instant`.
constexpr bool is_aligned(std::int64_t instant, std::int64_t length) {
    return instant % length == 0;
}

/// The start of the first window that has not begun at `now`.
constexpr std::int64_t next_start(std::int64_t now, std::int64_t length) {
    return saturate(int128{index_of(now, length)} * length + length);
}

/// When the window that starts at `start` is to be published.
constexpr std::int64_t publish_instant(std::int64_t start, std::int64_t lead) {
    return saturate(int128{start} - lead);
}

/// Whether a window may be published that starts at `start`, or why not.
enum class Acceptance : std::uint8_t { accepted, not_aligned, over, too_far_ahead };

constexpr Acceptance accept(std::int64_t start, std::int64_t length, std::int64_t now,
                            std::int64_t ahead_max) {
    if (!is_aligned(start, length))
        return Acceptance::not_aligned;
    const std::int64_t end = saturate(int128{start} + length);
    if (end <= now || end <= start)
        return Acceptance::over;
    return int128{start} - now > ahead_max ? Acceptance::too_far_ahead : Acceptance::accepted;
}

} // namespace window

} // namespace stacksaga::core
