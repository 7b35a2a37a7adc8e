// Where a session begins reading an index that other sessions read as well (probe.hpp): sessions
// share the result of one slow full probe.
#pragma once
#include "core/work/commit_horizon.hpp"

#include "src/common/probe.hpp"

namespace stacksaga {

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
