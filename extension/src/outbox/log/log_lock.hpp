// Locks of the outbox: for ticks, for maintenance, and for a partition of a subscription.
// Heavyweight locks (pg/lock.hpp) to the end of the transaction.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// The right to make the next tick. Without `wait`, false when another session has it: it makes
/// that tick.
bool lock_ticking(bool wait);
void unlock_ticking();

/// Waits until no session has that right, `timeout_ms` at most.
void wait_for_ticking(int timeout_ms);

/// The right to maintain the log; false when another session does it.
bool lock_maintenance();

/// The right to be the next who maintains it, which keeps nobody from reading; false when another
/// session has it.
bool lock_next_maintenance();

/// Keeps all sessions from maintaining the log, as a shared lock; waits for one that does.
void lock_out_maintenance();
/// The same for a moment; false when one maintained it for that long.
bool lock_out_maintenance(int timeout_ms);
void let_maintenance_in();

/// Waits until the transactions that hold a lock on the table have ended, `timeout_ms` at most for
/// each. Does not queue for the table: others go on to use it. Whether all have ended.
bool wait_for_holders(Oid table, int timeout_ms);

/// Keeps all sessions from altering a subscription, as a shared lock: a session that works on its
/// messages takes this before it reads its settings. Without `wait`, false when another session
/// alters it or waits to.
bool hold_settings(int32 subscription_id, bool wait);

/// The right to alter a subscription; waits for all sessions that hold its settings.
void lock_settings(int32 subscription_id);

/// The right to move the position of a subscription in a partition. A position that was read before
/// is a hint. Without `wait`, false when another session has the right.
bool lock_partition(int32 subscription_id, int16 partition, bool wait);
/// Whether a session has that right, or waits for it.
bool is_partition_locked(int32 subscription_id, int16 partition);

} // namespace stacksaga
