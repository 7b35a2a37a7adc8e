// Waking this database's workers when a transaction that made work commits.
#pragma once
#include "pg/pg.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga {

extern const pg::TransactionUser wake_events;

/// The largest stacksaga.workers. Workers count from 1.
inline constexpr int32 workers_max = 64;

/// Type of the worker processes in pg_stat_activity.
inline constexpr char worker_type[] = "stacksaga worker";

/// Sets the latches of this database's workers at the commit of the current transaction, once
/// however often it is called. Only a hint that saves the wait for the next poll: a transaction
/// that rolls back wakes nobody, one that rolled back just the subtransaction wakes for nothing.
void wake_workers_at_commit();

/// The same for work that is due then: what is due after stacksaga.poll_interval, workers find by
/// themselves.
void wake_workers_at_commit(TimestampTz due_at);

} // namespace stacksaga
