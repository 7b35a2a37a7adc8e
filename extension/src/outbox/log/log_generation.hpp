// Generations of the log: three tables that are filled in turn, and truncated when every
// subscription has read them. And the positions of subscriptions that do not read it themselves.
//
// All inside with_spi. In a worker each call is a transaction of its own: what it locks, readers
// leave out until it ends.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

std::span<const int32> list_subscriptions();

/// Moves the positions of a subscription over messages that it does not want, and over those that
/// it has not read within stacksaga.outbox_retention, which are copied out. Leaves out partitions
/// whose reader moves on meanwhile. Returns whether there is more to do at once.
bool move_idle_positions(int32 subscription_id);

/// Maintains the log, from time to time: begins a new generation when the current one is old or
/// large, truncates generations that no subscription needs, and deletes old ticks, positions and
/// batches. Returns whether there is more to do at once.
///
/// Never waits long: it leaves a generation that another session reads or dumps for the next time.
/// With `at_once` a generation counts as old as soon as it holds anything.
bool maintain_log(bool at_once);

} // namespace stacksaga
