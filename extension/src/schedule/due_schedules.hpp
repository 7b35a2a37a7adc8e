// When a worker fires schedules. Between two instants it reads its memory alone.
#pragma once
#include "src/ring/node.hpp"

namespace stacksaga {

/// Whether a schedule of the node's ring may be due now.
bool are_schedules_due(const NodeIdentity &node);

/// Microseconds until are_schedules_due(), as far as this process knows; 0: now.
int64 rest_until_schedules(const NodeIdentity &node);

/// Starts sagas that are due, batch after batch for a quarter of a second at most, each in a
/// transaction of its own. Returns how many runs it settled. Called outside of a transaction; an
/// error that is no schedule's comes out with its transaction still to be aborted.
int64 fire_schedules(const NodeIdentity &node);

} // namespace stacksaga
