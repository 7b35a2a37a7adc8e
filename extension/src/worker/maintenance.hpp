// Maintenance, from time to time between a worker's turns: it removes expired rows, and has sagas
// counted where that is due.
#pragma once
#include "src/ring/node.hpp"

namespace stacksaga {

/// About how often a step is due when the last one found nothing.
inline constexpr int64 maintenance_interval_us = 60 * USECS_PER_SEC;

/// One step, in short transactions of its own, for the slots that `node` owns; it changes a bounded
/// number of rows. Returns when the next step is due, on the steady clock: about a minute later,
/// or, where there is more to do, after a multiple of the time that this step took. Called outside
/// of a transaction; an error leaves its transaction for the caller to abort.
int64 run_maintenance(const NodeIdentity &node);

} // namespace stacksaga
