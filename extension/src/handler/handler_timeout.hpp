// How long a handler may run: when the time is over, the statement that it is in is cancelled, and
// again every second, since a handler may catch that. Ten seconds later its process ends.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// From now on, until finish_handler_timeout() or stop_handler_timeout(). One at a time.
void start_handler_timeout(int64 timeout_us);

/// The handler has returned: 57014 if that was too late, so that what it did is rolled back.
void finish_handler_timeout();

/// After an error: the rest of the timeout would cancel what runs after the handler. May be called
/// when none runs. Ends the process if it was to end while the handler ran.
void stop_handler_timeout();

/// Whether the time was over before it was stopped.
bool handler_has_timed_out();

} // namespace stacksaga
