#include "src/handler/handler_timeout.hpp"

#include "src/handler/crash_record.hpp"

namespace stacksaga {

namespace {

constexpr int cancel_interval_ms = 1000;
constexpr int cancels_max = 10; // then the process ends

constinit volatile sig_atomic_t cancels = 0;
constinit volatile sig_atomic_t has_overrun = false;
constinit bool is_registered = false;
constinit TimeoutId handler_timeout = USER_TIMEOUT;

/// In a signal handler: only flags, the latch and the timer, which such a handler may set again.
/// A handler can catch the cancel, but not the end of the process, which keeps the crash record.
void cancel_handler() {
    if (cancels == cancels_max) {
        has_overrun = true;
        record_overrun();
        ProcDiePending = true;
    } else {
        cancels = cancels + 1;
        QueryCancelPending = true;
        enable_timeout_after(handler_timeout, cancel_interval_ms);
    }
    InterruptPending = true;
    SetLatch(MyLatch);
}

/// The server's own log line only says that a process was asked to quit.
void explain_end(int, Datum) {
    if (has_overrun)
        ereport(LOG, (errmsg("a handler did not end within %d seconds after its timeout",
                             cancels_max * cancel_interval_ms / 1000),
                      errdetail("It caught the cancels, or ran code that never checks for them. "
                                "Its process ends, and its work is rolled back.")));
}

} // namespace

void start_handler_timeout(int64 timeout_us) {
    if (!is_registered) {
        handler_timeout = RegisterTimeout(USER_TIMEOUT, cancel_handler);
        before_shmem_exit(explain_end, 0);
        is_registered = true;
    }
    cancels = 0;
    const int64 ms = std::clamp<int64>(timeout_us / 1000, 1, INT_MAX);
    enable_timeout_after(handler_timeout, static_cast<int>(ms));
    record_timeout(get_timeout_finish_time(handler_timeout));
}

void finish_handler_timeout() {
    if (!is_registered)
        return;
    disable_timeout(handler_timeout, false);
    if (cancels == 0)
        return;
    CHECK_FOR_INTERRUPTS();
    ereport(ERROR,
            (errcode(ERRCODE_QUERY_CANCELED), errmsg("the handler returned after its timeout")));
}

void stop_handler_timeout() {
    if (!is_registered)
        return;
    disable_timeout(handler_timeout, false);
    if (has_overrun)
        CHECK_FOR_INTERRUPTS();
    if (cancels > 0) {
        cancels = 0;
        QueryCancelPending = false;
    }
}

bool handler_has_timed_out() {
    return cancels > 0;
}

} // namespace stacksaga
