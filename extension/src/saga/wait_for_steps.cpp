// wait_for_steps: a service waits until a queue may have something for it.
//
// While it waits it has committed, so it holds no snapshot and no lock but the shared one that says
// for which queue it waits, and vacuum goes on. It looks once before it waits, and after each wake
// and each instant at which a step falls due.
//
// A step is for the first in line: with one step due, the second one waits a moment until the first
// has claimed it, and takes it when nobody has.
#include "pg/attempt.hpp"
#include "pg/client.hpp"
#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/errors.hpp"
#include "pg/function.hpp"
#include "pg/scope.hpp"
#include "src/common/limits.hpp"
#include "src/common/queue_waiters.hpp"
#include "src/ring/ring.hpp"
#include "src/saga/claim_search.hpp"

namespace stacksaga {

namespace {

constexpr int64 wait_max_us = 60 * USECS_PER_SEC;
constexpr long check_client_ms = 1000; ///< how often it looks whether its client is still there

// What is due may not be claimable for this session: another claimer has locked it, or it is a
// retry in slots of another node. Calls that find something due at once, one after the other,
// return later and later, so that a service which claims nothing of it does not turn in circles.
constexpr int64 pause_max_us = 100 * 1000;
constexpr int64 pause_forgotten_us = USECS_PER_SEC;
struct Pause {
    int64 next_us = 0;
    int64 returned_at = 0;
};
constinit Pause pause{};

/// Ends the session's transaction and begins another one, whose first snapshot does not last.
void begin_anew() {
    SPI_commit();
    SPI_start_transaction();
    XactIsoLevel = XACT_READ_COMMITTED;
}

/// How long a step is left to those who stand before in line: some times as long as one of them
/// takes from its wake to its claim.
constexpr int64 patience_us = 2000;
/// When the first in line looks again: at steps that another transaction is changing, for it may
/// roll back, for leases that a look has not come to, and for steps that a look from a remembered
/// instant (probe.hpp) may have missed.
constexpr int64 look_again_us = USECS_PER_SEC;

Claimable look(int32 ring_id, std::string_view queue, size_t enough) {
    Claimable found{};
    pg::peek([&] { found = count_claimable(ring_id, queue, pg::clock_now(), enough); });
    return found;
}

/// Whether somebody woke this session.
bool sleep(int64 microseconds) {
    // Rounded up: before its time nothing is due.
    for (long left_ms = static_cast<long>((microseconds + 999) / 1000);;) {
        const long part_ms = std::min(left_ms, check_client_ms);
        const int events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
                                     part_ms, PG_WAIT_EXTENSION);
        ResetLatch(MyLatch);
        CHECK_FOR_INTERRUPTS();
        left_ms -= part_ms;
        if ((events & WL_LATCH_SET) != 0 || left_ms == 0)
            return (events & WL_LATCH_SET) != 0;
        pg::check_client();
    }
}

/// How long nothing will be due unless somebody wakes this session. `woken_at`: when it was woken
/// last, or came.
int64 rest(const Claimable &found, size_t place, TimestampTz woken_at) {
    const int64 until_due = found.next == DT_NOEND ? wait_max_us : found.next - pg::clock_now();
    const bool is_unsure =
        found.is_being_changed || found.has_leases_ahead || found.whole_at < woken_at;
    return is_unsure && place == 0 ? std::min(until_due, look_again_us) : until_due;
}

/// Waits until a step of the queue is due and left to this session, or `end`, an instant of the
/// steady clock. Whether one was due at the first look.
bool wait_until_due(int32 ring_id, std::string_view queue, int64 end) {
    size_t place = place_in_line();
    TimestampTz woken_at = pg::clock_now();
    Claimable found = look(ring_id, queue, place + 1);
    const bool was_due = found.due > 0;
    int64 patience_end = 0; // 0: nothing is due
    for (;;) {
        const int64 now = pg::steady_now();
        if (found.due > place || now >= end)
            return was_due;
        if (found.due == 0)
            patience_end = 0;
        else if (patience_end == 0)
            patience_end = now + patience_us;
        else if (now >= patience_end)
            return was_due;
        // The place before it sleeps counts: when those before it leave for the same step, it is
        // not first for that one.
        place = place_in_line();
        const int64 until = found.due > 0 ? patience_end : now + rest(found, place, woken_at);
        if (sleep(std::max<int64>(0, std::min(until, end) - now)))
            woken_at = pg::clock_now();
        found = look(ring_id, queue, place + 1);
    }
}

void wait_for_steps(int32 ring_id, std::string_view queue, int64 wait_us) {
    const int64 begun = pg::steady_now();
    if (begun - pause.returned_at > pause_forgotten_us)
        pause.next_us = 0;
    begin_waiting(ring_id, queue);
    const bool was_due = wait_until_due(ring_id, queue, begun + wait_us);
    if (was_due && pause.next_us > 0)
        (void)sleep(std::min(pause.next_us, wait_us));
    pause.next_us = was_due ? std::clamp<int64>(2 * pause.next_us, 1000, pause_max_us) : 0;
    stop_waiting();
    pause.returned_at = pg::steady_now();
}

void require_no_transaction(FunctionCallInfo fcinfo) {
    const bool is_call = fcinfo->context != nullptr && IsA(fcinfo->context, CallContext);
    if (is_call && !castNode(CallContext, fcinfo->context)->atomic)
        return;
    ereport(ERROR,
            (errcode(pg::sg409), errmsg("wait_for_steps() cannot run inside a transaction block"),
             errdetail("It would keep the snapshot and the locks of the transaction while it "
                       "waits, and see nothing that is committed meanwhile."),
             errhint("Commit first, and CALL it as a statement of its own.")));
}

} // namespace

// wait_for_steps(queue, wait), a procedure
STACKSAGA_FUNCTION(wait_for_steps) {
    PreventCommandDuringRecovery("wait_for_steps()");
    require_no_transaction(fcinfo);
    pg::Arguments arguments(fcinfo);
    const std::string_view name = arguments.required_text(0, "queue");
    check_name(name, "queue", queue_bytes_max);
    arguments.require(1, "wait");
    const int64 wait_us = pg::interval_microseconds(arguments.datum(1), "wait", false);
    if (wait_us > wait_max_us)
        ereport(ERROR, (errcode(pg::sg400), errmsg("interval \"wait\" is out of range"),
                        errdetail("The value is %s.", interval_text(wait_us)),
                        errhint("Wait a minute at most, and call again.")));
    std::array<char, queue_bytes_max> copy; // the argument may be gone after a commit
    std::copy(name.begin(), name.end(), copy.begin());
    const std::string_view queue{copy.data(), name.size()};
    const int32 ring_id = pg::with_pinned_path([] {
        return pg::as_owner([] { return pg::with_spi([] { return current_ring().ring_id; }); });
    });
    if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
        elog(ERROR, "SPI_connect_ext failed");
    begin_anew();
    wait_for_steps(ring_id, queue, wait_us);
    SPI_finish();
    PG_RETURN_NULL();
}

} // namespace stacksaga
