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

namespace stacksaga {

// The last slow full probe of an index, shared by the sessions of a database.
//
// While a snapshot is held open for an hour a full probe steps over millions of dead entries. What
// one session has found by it the others believe, so that neither each of them nor each new one
// has to find it by itself. It stands in the mapped file of counter_file.hpp, without a lock: a
// session that reads a place while it is written sees a wrong checksum, and ignores it.

struct FullProbe {
    TimestampTz at;         ///< it saw all that was committed by then
    TimestampTz first_left; ///< the first due row that it left
    int64 interval_us;      ///< how long this one stays valid

    bool is_recent(TimestampTz now) const { return at <= now && at > now - interval_us; }
};

/// By the key of what was probed, which is a hash. nullopt: nobody has shared one, or another key
/// has taken its place.
std::optional<FullProbe> shared_probe(uint64 key);
void share_probe(uint64 key, const FullProbe &probe);
void forget_shared_probe(uint64 key);

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

/// Where a session begins reading an index that other sessions read as well: they share the result
/// of one slow full probe.
class SessionProbe {
public:
    constexpr SessionProbe() = default;
    /// The key is the same in all sessions, and no other index's.
    constexpr SessionProbe(uint64 key, const ProbeMemory &memory) : key_(key), memory_(memory) {}

    /// The instant from which to look for what is due at `now`. The probe follows at once.
    TimestampTz begin(TimestampTz now);
    /// The same for a look at a part of the rows, which says nothing of the others: no probe
    /// follows.
    TimestampTz begin_of_part() const { return memory_.begin_of_part(); }
    /// The probe has come to a live row: its time until then went to dead entries. Optional where
    /// reading a row costs as much.
    void note_row(TimestampTz now);
    /// The probe has returned. What it left begins at this instant, which is `now` when it left
    /// nothing; `seen`: by its snapshot.
    void end(TimestampTz now, TimestampTz first_left, core::SeenTransactions seen);

    /// The next probe reads from the beginning, whatever others have found.
    void demand_full() { is_full_demanded_ = true; }
    /// Whether the probe that began last reads from the beginning.
    bool is_full() const { return memory_.is_full(); }
    /// It has seen all that was committed by then. Later commits of long transactions it may have
    /// missed.
    TimestampTz whole_at() const { return memory_.full_at(); }

private:
    void ask_others(TimestampTz now);

    uint64 key_ = 0;
    ProbeMemory memory_{};
    int64 processor_at_ = 0;
    bool is_searching_ = false; ///< no live row was found yet
    bool is_timed_ = false;     ///< by the processor's time
    bool is_slow_ = false;      ///< by that time
    bool is_announced_ = false; ///< others believe the last full probe until this one returns
    bool is_full_demanded_ = false;
};
static_assert(std::is_trivially_destructible_v<SessionProbe>);

} // namespace stacksaga
