// Sessions that wait for the steps of a queue, and commits that wake them.
//
// A waiter holds a shared lock on a tag that stands for the queue: the lock manager knows the
// waiters, without memory of our own, and forgets a waiter that crashes. Waiters stand in line. A
// commit that made steps due wakes the first waiter, however many steps they are: waking a crowd
// would cost each commit the price of a claim, and one claim takes many steps. A waiter that leaves
// wakes the next one when it has seen more steps than its claim takes, when it was woken again
// since it looked, and when nobody watches that it claims (work/promised_claims.hpp). One that
// leaves for any other reason always wakes the next one. So, unless all have left, one of them has
// looked after the last change, and no step is left lying.
#pragma once
#include "pg/pg.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga {

extern const pg::TransactionUser queue_waiter_events;

/// From now on commits that make steps of the queue due set this process's latch: until
/// stop_waiting(), or an error. A session waits for one queue at a time. The transaction must last
/// until then, since nobody sees a waiter between two transactions.
void begin_waiting(int32 ring_id, std::string_view queue);
/// `wakes_next`: wakes the next one in line, which then looks.
void stop_waiting(bool wakes_next);

/// Wakes the first one in line, unless that is this session.
void wake_first_in_line();

/// The number of sessions that wait before this one, and are woken before it.
size_t place_in_line();

/// Wakes the first waiter of the queue when the current transaction commits. Only a hint: a
/// transaction that rolls back wakes nobody, one that rolled back just the subtransaction wakes for
/// nothing, and so does a queue whose name has the same hash.
void wake_waiters_at_commit(int32 ring_id, std::string_view queue);

} // namespace stacksaga
