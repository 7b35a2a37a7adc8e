// Waking this database's workers when a transaction that made work commits.
#pragma once

namespace stacksaga {

/// Sets the latches of this database's workers at the commit of the current transaction, once
/// however often it is called. Only a hint that saves the wait for the next poll: a transaction
/// that rolls back wakes nobody, one that rolled back just the subtransaction wakes for nothing.
void wake_workers_at_commit();

} // namespace stacksaga
