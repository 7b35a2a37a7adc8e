// A session that waits: what wait_for_steps() and wait_for_messages() have in common.
//
// While it waits it has committed, so it holds no snapshot, and no lock but the shared one by which
// commits find the waiters of its line. So vacuum goes on. It looks once before it waits, and after
// each wake and each instant at which something falls due.
//
// A session that sees more than the sessions before it have left the line for leaves to claim it,
// and wakes the next one where its claim leaves some. A session that sees only what is for others
// watches until it is claimed, and leaves for what nobody has claimed after a moment.
#pragma once
#include "pg/clock.hpp"
#include "pg/pg.hpp"
#include "pg/statement/function.hpp"
#include "src/common/promised_claims.hpp"
#include "src/common/waiting_line.hpp"

namespace stacksaga {

inline constexpr int64 wait_max_us = 60 * USECS_PER_SEC;

/// SG409 unless the procedure was called outside of a transaction block.
void require_no_transaction(FunctionCallInfo fcinfo, const char *procedure);

/// The argument `wait`; SG400 when it is longer than wait_max_us.
int64 wait_argument(const pg::Arguments &arguments, int i);

/// Ends the session's transaction and begins another one, whose first snapshot does not last.
void begin_anew();

/// Whether another session woke this one.
bool sleep_in_line(int64 microseconds);

/// The session may be unable to claim what is due: another claimer has locked it, or it is a retry
/// in slots of another node. Calls that find something due at once, one after the other, return
/// later and later, so that a service which claims nothing of it does not loop at full speed. The
/// pause of a call that begins now; 0: none.
int64 pause_of_wait();
/// After the call. `was_at_once`: something was due at its first look.
void note_wait(bool was_at_once);
/// The session has claimed something.
void forget_pauses();

/// Waits in the line until something is due that is for this session. `look`, called with how many
/// are enough, returns `due`, their number, and what `rest` wants to know; `rest`, called with
/// that, with when this session was woken last, or began to wait, and with whether it has watched,
/// says how long nothing will be due unless another session wakes this one.
template <class L, class R>
void wait_in_line(const WaitingLine &line, PromisedClaims &promises, int64 wait_us, L &&look,
                  R &&rest) {
    const int64 end = pg::steady_now() + wait_us;
    const int64 pause_us = pause_of_wait();
    begin_waiting(line);
    if (pause_us > 0 && look(size_t{1}).due > 0)
        (void)sleep_in_line(std::min(pause_us, wait_us));
    TimestampTz woken_at = pg::clock_now();
    bool is_watching = false, was_at_once = true, is_in_vain = false;
    for (;; was_at_once = false) {
        const auto found = look(promises.enough());
        if (promises.promise(found.due))
            break;
        const int64 left = end - pg::steady_now();
        is_in_vain = left <= 0;
        if (is_in_vain)
            break;
        const int64 nothing_due =
            found.due > 0 ? promises.watch_us() : rest(found, woken_at, is_watching);
        is_watching = found.due > 0;
        if (is_watching)
            promises.watch();
        if (sleep_in_line(std::max<int64>(0, std::min(nothing_due, left))))
            woken_at = pg::clock_now();
        if (is_watching)
            promises.stop_watch();
    }
    stop_waiting(is_in_vain || promises.has_more() || !promises.is_watched());
    note_wait(was_at_once && !is_in_vain);
}

} // namespace stacksaga
