// How long a handler may run: when the time is over, the statement that it is in is cancelled.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// From now on, until stop_handler_timeout(). One at a time.
void start_handler_timeout(int64 timeout_us);

/// Also after an error: what is left of the time would stop whatever comes after the handler. May
/// be called when none runs.
void stop_handler_timeout();

/// Whether the time was over before it was stopped.
bool handler_has_timed_out();

} // namespace stacksaga
