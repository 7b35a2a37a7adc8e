// The next window to publish and its due time. Pure: the time is an argument.
#pragma once

#include "roles/control_store.hpp"

#include <optional>

namespace stacksaga::coordinator {

/// The next window that, as far as this coordinator knows, is not published yet.
struct WindowPlan {
    Instant window_start; ///< a whole multiple of the window length, later than `now`
    Instant due_at; ///< window_start less the lead; in the past for a coordinator that starts late
    bool due = false; ///< due_at <= now: publish at once
};

/// Start of the first window that has not begun at `at` (see core/ring/window.hpp for how time is
/// cut).
[[nodiscard]] Instant window_after(Instant at, Duration window_length) noexcept;

/// Plans from the time, the state of the ring and `settled`, the latest window that this
/// coordinator has published or found published: the answer to a publication may be newer than
/// `ring.last_window`.
///
/// Clock jumps: after a jump forward the plan skips the windows in between, since no node can work
/// in them. After a jump backward it ignores windows that are further ahead than any publisher with
/// this clock could publish; otherwise no window would be published until the clock caught up. To
/// publish an existing window again is harmless: the database answers that it exists.
///
/// Requires ring.window_length > 0 and ring.publish_lead >= 0. A lead shorter than a second counts
/// as a second, or as half of a window that is shorter than two seconds. A lead may be longer than
/// the window: then several windows lie ahead, and each call plans the next of them.
[[nodiscard]] WindowPlan plan_window(Instant now, const RingState &ring,
                                     std::optional<Instant> settled) noexcept;

/// Estimates the database clock between two readings of it, by the steady clock of this machine.
class DatabaseClock {
public:
    /// Adds one reading: the database returned `database_time` at some moment between `sent` and
    /// `received`; the middle is assumed, so the error is at most half of the round trip. Returns
    /// the distance that the database clock moved against the steady clock since the last reading,
    /// if there was one.
    std::optional<Duration> observe(SteadyTime sent, SteadyTime received,
                                    Instant database_time) noexcept;

    /// Estimated database time. Requires one reading.
    [[nodiscard]] Instant now(SteadyTime at) const noexcept;

    /// The time of the steady clock at which the database clock will show `at`. Requires one
    /// reading.
    [[nodiscard]] SteadyTime when(Instant at) const noexcept;

private:
    SteadyTime read_at_;
    Instant database_time_;
    bool known_ = false;
};

} // namespace stacksaga::coordinator
