// Generations of the log: three tables that are filled in turn, and truncated when every
// subscription has read them.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// Maintains the log, from time to time, in a transaction of its own: begins a new generation when
/// the current one is old or large, copies out messages that a subscription has not read within
/// stacksaga.outbox_retention, truncates generations that no subscription needs, and deletes old
/// ticks, positions and batches. Returns whether there is more to do at once. Inside with_spi.
///
/// Never waits long: it leaves a generation that another session reads or dumps for the next time.
/// With `at_once` a generation counts as old as soon as it holds anything.
bool maintain_log(bool at_once);

} // namespace stacksaga
