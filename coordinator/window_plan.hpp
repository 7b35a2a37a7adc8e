// Which window to publish next, and when. Pure: the time is an argument.
#pragma once

#include "types.hpp"

#include <optional>

namespace stacksaga::coordinator {

/// The next window that this coordinator knows not to be published yet.
struct Plan {
    Instant window_start; ///< a whole multiple of the window length, later than `now`
    Instant due_at;       ///< window_start less the lead; past for a coordinator that starts late
    bool due = false;     ///< due_at <= now: publish at once
};

/// Start of the first window that has not begun at `at` (see core/window.hpp for how time is cut).
[[nodiscard]] Instant window_after(Instant at, Duration window_length) noexcept;

/// Plans from the time and state of the ring and from `settled`, the latest window that this
/// coordinator saw settled itself (published by it or by another), because the answer of a
/// publication may be newer than `ring.last_window`.
///
/// Clock jumps: forward, the windows that were jumped over are skipped, since nobody can work in
/// them; backward, windows that lie further ahead than any publisher with this clock could have
/// published are not believed, or nothing would be published until the clock caught up. Asking for
/// one that exists already is harmless, the database answers that it is taken.
///
/// Requires ring.window_length > 0 and ring.publish_lead >= 0. A lead shorter than a second is
/// taken for a second, or half of a window that is shorter than two. A lead longer than the window
/// is fine: several windows then lie ahead, and are planned one after the other.
[[nodiscard]] Plan plan(Instant now, const RingState &ring,
                        std::optional<Instant> settled) noexcept;

/// Follows the database clock between two looks at it, by the steady clock of this machine.
class DatabaseClock {
public:
    /// Takes in one reading: the database said `database_time` at some moment between `sent` and
    /// `received`; the middle is assumed, so the error is at most half of the round trip. Returns
    /// by how much the database clock moved against the steady clock since the last reading, if
    /// there was one.
    std::optional<Duration> observe(SteadyTime sent, SteadyTime received,
                                    Instant database_time) noexcept;

    /// Estimated database time. Requires one reading.
    [[nodiscard]] Instant now(SteadyTime at) const noexcept;

    /// When, on the steady clock, the database clock will show `at`. Requires one reading.
    [[nodiscard]] SteadyTime when(Instant at) const noexcept;

private:
    SteadyTime read_at_;
    Instant database_time_;
    bool known_ = false;
};

} // namespace stacksaga::coordinator
