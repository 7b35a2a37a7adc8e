// Generations of the log: three tables that are filled in turn, and emptied when all have read
// them.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// What is done about the log from time to time, each in a transaction of its own: begins a new
/// generation when the current one is old or large, moves aside what stalled subscriptions have not
/// read within stacksaga.outbox_retention, empties a generation that nobody needs, and forgets old
/// ticks, positions and batches. Returns whether there is more to do at once. Inside with_spi.
///
/// Never waits long: a generation that somebody reads or dumps is left for the next time. With
/// `now_or_never` a generation counts as old as soon as it holds anything.
bool maintain_log(bool now_or_never);

} // namespace stacksaga
