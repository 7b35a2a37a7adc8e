// Sessions that wait for the steps of a queue, and commits that wake them.
//
// A waiter holds a shared lock on a tag that stands for the queue: the lock manager knows who
// waits, without memory of our own, and forgets a waiter that dies. Waiters stand in line. A commit
// that made steps due wakes the first one, however many they are, since a crowd that is woken costs
// each commit what a claim costs, and one claim takes many. A waiter that leaves wakes the next one
// when it has seen more than its claim takes, when it was woken again since it looked, and when
// nobody watches that it claims (work/promised_claims.hpp); one that leaves for any other reason
// wakes the next one always. So one of them, unless all have left, has looked after the last
// change, and a step that is left lying is seen.
#pragma once
#include "pg/pg.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga {

extern const pg::TransactionUser queue_waiter_events;

/// From now on commits that make steps of the queue due set this process's latch: until
/// stop_waiting(), or an error. One queue at a time. The transaction must last until then, since
/// nobody sees a waiter between two transactions.
void begin_waiting(int32 ring_id, std::string_view queue);
/// `wakes_next`: the next one in line is to look as well.
void stop_waiting(bool wakes_next);

/// Has the first one in line look, unless that is this session.
void wake_first_in_line();

/// How many wait before this session, and are woken before it.
size_t place_in_line();

/// Wakes the first waiter of the queue when the current transaction commits. Only a hint: a
/// transaction that rolls back wakes nobody, one that rolled back just the subtransaction wakes for
/// nothing, and so does a queue whose name has the same hash.
void wake_waiters_at_commit(int32 ring_id, std::string_view queue);

} // namespace stacksaga
