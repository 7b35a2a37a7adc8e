// wait_for_steps: a service waits until a queue may have something for it.
//
// While it waits it has committed, so it holds no snapshot, and no lock but the shared one by which
// commits find the waiters of a queue. So vacuum goes on. It looks once before it waits, and after
// each wake and each instant at which a step falls due.
//
// A session that sees more steps than the sessions before it have left the line for claims them
// itself, and wakes the next one where its claim leaves some. A session that sees only steps of
// others watches until they are claimed, and takes those that nobody has claimed after a moment.
#include "pg/client.hpp"
#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/errors.hpp"
#include "pg/statement/attempt.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/queue/queue_waiters.hpp"
#include "src/ring/rings.hpp"
#include "src/work/claim_search.hpp"
#include "src/work/promised_claims.hpp"

namespace stacksaga {

namespace {

constexpr int64 wait_max_us = 60 * USECS_PER_SEC;
constexpr long check_client_ms = 1000; ///< how often it looks whether its client is still there

// The session may be unable to claim a due step: another claimer has locked it, or it is a retry in
// slots of another node. Calls that find something due at once, one after the other, return later
// and later, so that a service which claims nothing of it does not loop at full speed.
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

/// When the first in line looks again: at steps that another transaction is changing, for it may
/// roll back, for leases that a look has not reached, and for steps that a look from a remembered
/// instant (probe.hpp) may have missed.
constexpr int64 look_again_us = USECS_PER_SEC;

Claimable look(int32 ring_id, std::string_view queue, size_t enough) {
    Claimable found{};
    pg::peek([&] { found = count_claimable(ring_id, queue, pg::clock_now(), enough); });
    return found;
}

/// Whether another session woke this one.
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

/// How long nothing will be due unless another session wakes this one. `woken_at`: when it was
/// woken last, or began to wait. `has_watched`: those before it may not have looked since.
int64 rest(const Claimable &found, TimestampTz woken_at, bool has_watched) {
    const int64 until_due = found.next == DT_NOEND ? wait_max_us : found.next - pg::clock_now();
    const bool is_unsure =
        found.is_being_changed || found.has_leases_ahead || found.whole_at < woken_at;
    if (!is_unsure)
        return until_due;
    if (place_in_line() == 0)
        return std::min(until_due, look_again_us);
    if (has_watched)
        wake_first_in_line();
    return until_due;
}

enum class Waited : uint8_t {
    not_at_all, ///< a step was due for this session at its first look
    for_step,
    in_vain,
};

/// Waits until a step of the queue is due for this session, or `end`, an instant of the steady
/// clock.
Waited wait_until_due(int32 ring_id, std::string_view queue, PromisedClaims &promises, int64 end) {
    TimestampTz woken_at = pg::clock_now();
    bool is_watching = false;
    for (Waited waited = Waited::not_at_all;; waited = Waited::for_step) {
        const Claimable found = look(ring_id, queue, promises.enough_steps());
        if (promises.promise(found.due))
            return waited;
        const int64 left = end - pg::steady_now();
        if (left <= 0)
            return Waited::in_vain;
        const int64 nothing_due =
            found.due > 0 ? PromisedClaims::watch_us : rest(found, woken_at, is_watching);
        is_watching = found.due > 0;
        if (is_watching)
            promises.watch();
        if (sleep(std::max<int64>(0, std::min(nothing_due, left))))
            woken_at = pg::clock_now();
        if (is_watching)
            promises.stop_watch();
    }
}

void wait_for_steps(int32 ring_id, std::string_view queue, int64 wait_us) {
    const int64 begun = pg::steady_now();
    if (begun - pause.returned_at > pause_forgotten_us)
        pause.next_us = 0;
    PromisedClaims promises(ring_id, queue);
    begin_waiting(ring_id, queue);
    if (pause.next_us > 0 && look(ring_id, queue, 1).due > 0)
        (void)sleep(std::min(pause.next_us, wait_us));
    const Waited waited = wait_until_due(ring_id, queue, promises, begun + wait_us);
    pause.next_us =
        waited == Waited::not_at_all ? std::clamp<int64>(2 * pause.next_us, 1000, pause_max_us) : 0;
    stop_waiting(waited == Waited::in_vain || promises.has_more() || !promises.is_watched());
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
