// What a worker does between its turns, now and then: it removes what nobody needs any more, and
// has sagas counted where that is due.
#pragma once
#include "src/ring/node.hpp"

namespace stacksaga {

/// How often a step is due where there is nothing to be done, about.
inline constexpr int64 maintenance_interval_us = 60 * USECS_PER_SEC;

/// One step, in short transactions of its own, for what belongs to the slots that `node` owns; the
/// rows that it touches are bounded. Returns when the next step is due, on the steady clock: about
/// a minute later, or, where there is more to do, after some times as long as this step took.
/// Called outside of a transaction; an error comes out with its transaction still to be aborted.
int64 run_maintenance(const NodeIdentity &node);

} // namespace stacksaga
