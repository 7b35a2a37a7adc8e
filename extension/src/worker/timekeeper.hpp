// The timekeeper: one process beside the workers of a database, for what is due by time and calls
// no function of a user. While a worker has been in a handler for a second it acts as that worker:
// it fires schedules, handles deadlines, timers and leases that ran out, runs retention, and sends
// the worker's heartbeats.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// Starts the timekeeper of this database where none runs. Where no background worker slot is free,
/// the next call tries again, and its duties wait for the workers meanwhile. Outside of a
/// transaction.
void ensure_timekeeper();

} // namespace stacksaga
