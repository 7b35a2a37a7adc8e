// Due schedules: the sagas that they start.
//
// A run is settled once, by whichever session comes first: it locks the row of the schedule, starts
// the saga with the run's identity as its key, and writes the next run with it. A run that fails is
// undone alone and tried again after a pause, while other schedules continue.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

struct Firing {
    int64 settled = 0; ///< runs that started a saga, or were skipped since one before is running
    int64 failures = 0;
    bool more = false; ///< something may be due still
};

/// Settles at most `runs_max` runs of the ring's due schedules that no other session has locked.
/// Sagas are started in the ring of the session. Inside with_spi.
Firing fire_due_schedules(int32 ring_id, int32 runs_max);

/// When a schedule of the ring is due next; DT_NOEND: none is. Inside with_spi.
TimestampTz next_schedule_due(int32 ring_id);

} // namespace stacksaga
