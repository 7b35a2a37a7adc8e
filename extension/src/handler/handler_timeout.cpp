#include "src/handler/handler_timeout.hpp"

namespace stacksaga {

namespace {

constinit volatile sig_atomic_t has_timed_out = false;
constinit bool is_registered = false;
constinit TimeoutId handler_timeout = USER_TIMEOUT;

/// In a signal handler: only flags and the latch.
void cancel_handler() {
    has_timed_out = true;
    InterruptPending = true;
    QueryCancelPending = true;
    SetLatch(MyLatch);
}

} // namespace

void start_handler_timeout(int64 timeout_us) {
    if (!is_registered) {
        handler_timeout = RegisterTimeout(USER_TIMEOUT, cancel_handler);
        is_registered = true;
    }
    has_timed_out = false;
    const int64 ms = std::clamp<int64>(timeout_us / 1000, 1, INT_MAX);
    enable_timeout_after(handler_timeout, static_cast<int>(ms));
}

void stop_handler_timeout() {
    if (!is_registered)
        return;
    disable_timeout(handler_timeout, false);
    if (has_timed_out) { // it fired when the handler was already done
        has_timed_out = false;
        QueryCancelPending = false;
    }
}

bool handler_has_timed_out() {
    return has_timed_out;
}

} // namespace stacksaga
