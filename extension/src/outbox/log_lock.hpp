// Locks of the outbox: who ticks, and who works in a partition of a subscription. Heavyweight locks
// (pg/lock.hpp) to the end of the transaction.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// The right to make the next tick. False when another session has it: it makes that tick.
bool lock_ticking();

/// The right to tend the log; false when another session is at it.
bool lock_maintenance();

/// Keeps everybody from tending it, side by side with others who do so; waits for who is at it.
void lock_out_maintenance();

/// Keeps everybody from altering a subscription, side by side with others who do so: whoever works
/// on its messages takes this before reading its settings. Without `wait`, false when another
/// session alters it or waits to.
bool hold_settings(int32 subscription_id, bool wait);

/// The right to alter a subscription; waits for all who hold its settings.
void lock_settings(int32 subscription_id);

/// The right to move the position of a subscription in a partition. What was read of it before is a
/// hint. Without `wait`, false when another session has it.
bool lock_partition(int32 subscription_id, int16 partition, bool wait);

} // namespace stacksaga
