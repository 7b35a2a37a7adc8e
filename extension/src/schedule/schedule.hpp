// Schedules as their tables keep them.
#pragma once
#include "core/time/schedule_run.hpp"

#include "pg/pg.hpp"

namespace stacksaga {

using core::catch_up_names;
using core::CatchUp;
using core::Overlap;
using core::overlap_names;

/// When this transaction commits, every worker looks again for the schedule that is due next.
void announce_schedules();

} // namespace stacksaga
