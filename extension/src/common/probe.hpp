// Where to begin reading an index whose head may be full of dead entries.
//
// Work rows are deleted when done. Until they are vacuumed, and while somebody holds a snapshot
// open nothing is, their index entries stay, and a probe from the beginning steps over all of them:
// tens of milliseconds where a fraction of one is usual. After three slow probes in a row (a single
// one may have waited for the processor) probes begin at a remembered instant. Only one in some
// seconds, less often where it costs more, reads from the beginning, for work whose transaction was
// long or whose saga was locked.
#pragma once
#include "core/work/commit_horizon.hpp"

#include "pg/clock.hpp"
#include "src/common/shared_probe.hpp"

namespace stacksaga {

class ProbeMemory {
public:
    constexpr ProbeMemory() = default;
    /// A probe that takes less than `cheap_us` of the clock is cheap. Where probes are slow one in
    /// `full_interval_us`, or fewer where it costs more, reads from the beginning. The others read
    /// rows inserted since `commit_lag_us` before the last probe that left nothing.
    constexpr explicit ProbeMemory(int64 cheap_us, int64 (*clock)() = pg::steady_now,
                                   int64 full_interval_us = 10 * USECS_PER_SEC,
                                   int64 commit_lag_us = 5 * USECS_PER_SEC)
        : clock_(clock), cheap_us_(cheap_us), full_interval_min_us_(full_interval_us),
          commit_lag_us_(commit_lag_us) {}

    /// The instant from which to look for what is due at `now`. The probe follows at once.
    TimestampTz begin(TimestampTz now) {
        is_full_ = is_full_due(now);
        if (is_full_)
            started_at_ = clock_();
        return is_full_ ? DT_NOBEGIN : read_from_;
    }

    /// The same for a look at a part of the rows, which says nothing of the others: no probe
    /// follows.
    TimestampTz begin_of_part() const { return is_slow() ? read_from_ : DT_NOBEGIN; }

    /// Whether a probe that begins now reads from the beginning.
    bool is_full_due(TimestampTz now) const {
        return slow_ < slow_max || full_at_ <= now - full_interval_us_ || full_at_ > now;
    }
    /// Whether the probe that began last reads from the beginning.
    bool is_full() const { return is_full_; }
    /// A full probe has seen all that was committed by then: the last one of this session, or one
    /// that it believes.
    TimestampTz full_at() const { return full_at_; }
    int64 cheap_us() const { return cheap_us_; }
    /// Whether full probes are known to be slow.
    bool is_slow() const { return slow_ == slow_max; }
    /// Whether one more slow full probe makes that known.
    bool may_become_slow() const { return slow_ >= slow_max - 1; }

    /// The next probe reads from the beginning. What is known of its cost stays.
    void demand_full() { full_at_ = DT_NOBEGIN; }

    /// Others found full probes slow: one more of this session makes it known to it.
    void expect_slow() { slow_ = std::max(slow_, slow_max - 1); }

    /// Another session's full probe, which was slow, counts as one of this session.
    void adopt(const FullProbe &probe) {
        slow_ = slow_max;
        full_at_ = probe.at;
        full_interval_us_ = probe.interval_us;
        read_from_ = probe.first_left;
    }
    /// The last full one, for others to adopt; after settle_at().
    FullProbe last_full() const {
        return {.at = full_at_, .first_left = read_from_, .interval_us = full_interval_us_};
    }

    /// The probe has returned.
    void end(TimestampTz now) {
        if (!is_full_)
            return;
        const int64 cost_us = clock_() - started_at_;
        slow_ = cost_us < cheap_us_ ? 0 : std::min(slow_ + 1, slow_max);
        full_interval_us_ = std::max(full_interval_min_us_, cost_us * full_cost_share);
        full_at_ = now;
    }

    /// Whether the probe of `now` saw all that was due, and nothing of it is left.
    void settle(TimestampTz now, bool drained) {
        if (drained)
            read_from_ = now - commit_lag_us_;
        else if (is_full_)
            read_from_ = DT_NOBEGIN;
    }

    /// The first row that the probe of `now` left is due at this instant, which is `now` when it
    /// left nothing. A row committed later is due no earlier than its transaction began, by and
    /// large.
    void settle_at(TimestampTz now, TimestampTz first_left, core::SeenTransactions seen) {
        horizon_.note(now, seen);
        TimestampTz may_come = now - commit_lag_us_;
        if (const std::optional<int64> begun = horizon_.at())
            may_come = std::max(may_come, *begun - id_lag_us);
        read_from_ = std::min(first_left, may_come);
    }

private:
    static constexpr int slow_max = 3;
    static constexpr int64 full_cost_share = 50; // full probes take at most 2 % of the time

    // A transaction reads the clock, may wait for a lock, and gets its id when it first writes.
    static constexpr int64 id_lag_us = 250 * 1000;

    int64 (*clock_)() = pg::steady_now;
    int64 cheap_us_ = 5000;
    int64 full_interval_min_us_ = 10 * USECS_PER_SEC;
    // Work is inserted at an instant and seen at its commit; the usual maximum between the two.
    int64 commit_lag_us_ = 5 * USECS_PER_SEC;
    core::CommitHorizon horizon_{commit_lag_us_};
    int64 full_interval_us_ = 0;
    TimestampTz read_from_ = DT_NOBEGIN;
    TimestampTz full_at_ = DT_NOBEGIN;
    int64 started_at_ = 0;
    int slow_ = 0; ///< number of slow full probes in a row
    bool is_full_ = true;
};
static_assert(std::is_trivially_destructible_v<ProbeMemory>);

} // namespace stacksaga
