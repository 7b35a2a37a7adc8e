#include "src/common/session_probe.hpp"

#include "core/work/commit_horizon.hpp"

namespace stacksaga {

TimestampTz SessionProbe::begin(TimestampTz now) {
    is_searching_ = true;
    is_announced_ = false;
    if (std::exchange(is_full_demanded_, false))
        memory_.demand_full();
    else if (memory_.is_full_due(now))
        ask_others(now);
    const TimestampTz from = memory_.begin(now);
    is_timed_ = memory_.is_full() && memory_.may_become_slow();
    if (is_timed_)
        processor_at_ = pg::processor_now();
    return from;
}

void SessionProbe::ask_others(TimestampTz now) {
    const std::optional<FullProbe> shared = shared_probe(key_);
    if (shared && shared->is_recent(now)) {
        memory_.adopt(*shared);
    } else if (shared && shared->at <= now) { // else the clock was set back
        // One session reads it all, and the others need not wait for what it finds.
        share_probe(key_, {now, shared->first_left, shared->interval_us});
        is_announced_ = true;
        memory_.expect_slow();
    }
}

void SessionProbe::note_row(TimestampTz now) {
    if (!is_searching_)
        return;
    is_searching_ = false;
    // By the clock it may be slow because others had the processor. That is no reason for all.
    is_slow_ = is_timed_ && pg::processor_now() - processor_at_ >= memory_.cheap_us();
    memory_.end(now);
}

void SessionProbe::end(TimestampTz now, TimestampTz first_left, core::SeenTransactions seen) {
    note_row(now);
    memory_.settle_at(now, first_left, seen);
    if (is_slow_ && memory_.is_slow())
        share_probe(key_, memory_.last_full());
    else if (is_announced_)
        forget_shared_probe(key_);
}

} // namespace stacksaga
