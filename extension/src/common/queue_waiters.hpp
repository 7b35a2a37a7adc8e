// Sessions that wait for the steps of a queue, and commits that wake them.
//
// A waiter holds a shared lock on a tag that stands for the queue. A commit that made a step due
// asks the lock manager who holds it: one look into its table for each queue, no memory of our own,
// and a waiter that dies is forgotten.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// From now on commits that make steps of the queue due set this process's latch: until
/// stop_waiting(), or an error. One queue at a time.
void begin_waiting(int32 ring_id, std::string_view queue);
void stop_waiting();

/// Wakes the queue's waiters when the current transaction commits, once however often it is called.
/// Only a hint: a transaction that rolls back wakes nobody, one that rolled back just the
/// subtransaction wakes for nothing, and so does a queue whose name has the same hash.
void wake_waiters_at_commit(int32 ring_id, std::string_view queue);

} // namespace stacksaga
