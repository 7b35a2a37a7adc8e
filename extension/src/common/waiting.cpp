#include "src/common/waiting.hpp"

#include "pg/client.hpp"
#include "pg/compat.hpp"
#include "pg/errors.hpp"
#include "src/common/limits.hpp"

namespace stacksaga {

namespace {

constexpr long check_client_ms = 1000; ///< how often it looks whether its client is still there

constexpr int64 pause_max_us = 100 * 1000;
constexpr int64 pause_forgotten_us = USECS_PER_SEC;
struct Pause {
    int64 next_us = 0;
    int64 returned_at = 0;
};
constinit Pause pause{};

} // namespace

void require_no_transaction(FunctionCallInfo fcinfo, const char *procedure) {
    const bool is_call = fcinfo->context != nullptr && IsA(fcinfo->context, CallContext);
    if (is_call && !castNode(CallContext, fcinfo->context)->atomic)
        return;
    ereport(ERROR,
            (errcode(pg::sg409), errmsg("%s cannot run inside a transaction block", procedure),
             errdetail("It would keep the snapshot and the locks of the transaction while it "
                       "waits, and see nothing that is committed meanwhile."),
             errhint("Commit first, and CALL it as a statement of its own.")));
}

int64 wait_argument(const pg::Arguments &arguments, int i) {
    arguments.require(i, "wait");
    const int64 wait_us = pg::interval_microseconds(arguments.datum(i), "wait", false);
    if (wait_us > wait_max_us)
        ereport(ERROR, (errcode(pg::sg400), errmsg("interval \"wait\" is out of range"),
                        errdetail("The value is %s.", interval_text(wait_us)),
                        errhint("Wait a minute at most, and call again.")));
    return wait_us;
}

void begin_anew() {
    SPI_commit();
    SPI_start_transaction();
    XactIsoLevel = XACT_READ_COMMITTED;
}

bool sleep_in_line(int64 microseconds) {
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

int64 pause_of_wait() {
    if (pg::steady_now() - pause.returned_at > pause_forgotten_us)
        pause.next_us = 0;
    return pause.next_us;
}

void note_wait(bool was_at_once) {
    pause = {.next_us = was_at_once ? std::clamp<int64>(2 * pause.next_us, 1000, pause_max_us) : 0,
             .returned_at = pg::steady_now()};
}

void forget_pauses() {
    pause = {};
}

} // namespace stacksaga
