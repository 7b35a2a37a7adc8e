// Sessions that wait for the steps of a queue, and commits that wake them.
//
// A waiter holds a shared lock on a tag that stands for the queue: the lock manager knows who
// waits, without memory of our own, and forgets a waiter that dies. Waiters stand in line. A commit
// that made steps due wakes as many as there are steps, the first ones in line, since a crowd that
// is woken for one step costs each commit what a claim costs. A waiter that leaves wakes the first
// of the others. So one of them, unless all have left, has looked after the last change, and a step
// that is left lying is seen.
#pragma once
#include "pg/pg.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga {

extern const pg::TransactionUser queue_waiter_events;

/// From now on commits that make steps of the queue due set this process's latch: until
/// stop_waiting(), or an error. One queue at a time. The transaction must last until then, since
/// nobody sees a waiter between two transactions.
void begin_waiting(int32 ring_id, std::string_view queue);
void stop_waiting();

/// How many wait before this session, and are woken before it.
size_t place_in_line();

/// Wakes a waiter of the queue for this step when the current transaction commits. Only a hint: a
/// transaction that rolls back wakes nobody, one that rolled back just the subtransaction wakes for
/// nothing, and so does a queue whose name has the same hash.
void wake_waiters_at_commit(int32 ring_id, std::string_view queue);

} // namespace stacksaga
