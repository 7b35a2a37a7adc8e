#include "roles/window_plan.hpp"

#include "core/ring/window.hpp"

#include <algorithm>

namespace stacksaga::coordinator {

namespace {

/// The core counts microseconds from PostgreSQL's epoch.
std::int64_t to_core(Instant at) noexcept {
    return at.time_since_epoch().count() + core::unix_epoch_us;
}

Instant from_core(std::int64_t at) noexcept {
    return Instant{Duration{at - core::unix_epoch_us}};
}

/// A window must be published before it opens: a daemon that wakes at that instant is too late.
constexpr Duration least_lead = std::chrono::seconds(1);

Duration lead_of(const RingState &ring) noexcept {
    return std::max(ring.publish_lead, std::min(least_lead, ring.window_length / 2));
}

} // namespace

Instant window_after(Instant at, Duration window_length) noexcept {
    return from_core(core::window::next_start(to_core(at), window_length.count()));
}

WindowPlan plan_window(Instant now, const RingState &ring,
                       std::optional<Instant> settled) noexcept {
    const Instant next_start = window_after(now, ring.window_length);
    // A window further ahead than this was published before the clock was set back.
    const Duration lead = lead_of(ring);
    const Instant believable = now + lead + ring.window_length;

    Instant window_start = next_start;
    for (const auto &known : {ring.last_window, settled}) {
        if (known && *known >= window_start && *known <= believable)
            window_start = window_after(*known, ring.window_length);
    }
    const Instant due_at = window_start - lead;
    return {.window_start = window_start, .due_at = due_at, .due = due_at <= now};
}

std::optional<Duration> DatabaseClock::observe(SteadyTime sent, SteadyTime received,
                                               Instant database_time) noexcept {
    const SteadyTime middle = sent + (received - sent) / 2;
    std::optional<Duration> moved;
    if (known_)
        moved = database_time - now(middle);
    read_at_ = middle;
    database_time_ = database_time;
    known_ = true;
    return moved;
}

Instant DatabaseClock::now(SteadyTime at) const noexcept {
    return database_time_ + std::chrono::floor<Duration>(at - read_at_);
}

SteadyTime DatabaseClock::when(Instant at) const noexcept {
    return read_at_ + (at - database_time_);
}

} // namespace stacksaga::coordinator
