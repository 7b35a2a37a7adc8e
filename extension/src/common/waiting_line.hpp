// Sessions that wait for the same, in a line: for the steps of a queue, for the messages of a
// subscription; and commits that wake them.
//
// A waiter holds a shared lock on a tag that stands for its line: the lock manager knows the
// waiters, without memory of our own, and forgets a waiter that crashes. A commit that made steps
// due wakes the first waiter, however many steps they are: waking a crowd would cost each commit
// the price of a claim, and one claim takes many steps. A waiter that leaves wakes the next one
// when it has seen more than its claim takes, when it was woken again since it looked, and when
// nobody watches that it claims (promised_claims.hpp). One that leaves for any other reason always
// wakes the next one. So, unless all have left, one of them has looked after the last change, and
// nothing is left lying.
#pragma once
#include "pg/lock.hpp"
#include "pg/pg.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga {

extern const pg::TransactionUser waiting_line_events;

/// What the sessions of a line wait for: the class of its lock, and the numbers of its tag.
struct WaitingLine {
    pg::LockClass lock_class;
    uint32 first, second;

    friend constexpr bool operator==(const WaitingLine &, const WaitingLine &) = default;
};

/// From now on commits that make something due for the line set this process's latch: until
/// stop_waiting(), or an error. A session waits in one line at a time. Nobody leaves the line by
/// the end of a transaction, but an error must find one to undo.
void begin_waiting(const WaitingLine &line);
/// `wakes_next`: wakes the next one in line, which then looks.
void stop_waiting(bool wakes_next);

/// Wakes the first one in line, unless that is this session.
void wake_first_in_line();
/// Wakes the first one behind this session: what is due is not for this one.
void wake_one_behind();

/// The number of sessions that wait before this one, and are woken before it.
size_t place_in_line();

/// Wakes the first waiter of the line when the current transaction commits. Only a hint: a
/// transaction that rolls back wakes nobody, one that rolled back just the subtransaction wakes for
/// nothing, and so does a queue whose name has the same hash.
void wake_waiters_at_commit(const WaitingLine &line);

/// The partition of the lock table that holds the lock of a line.
int partition_of(const WaitingLine &line);

/// Wakes the first waiter of each line of this class that is in this partition of the lock table
/// and that `is_wanted`. Allocates nothing and raises nothing.
void wake_lines(pg::LockClass lock_class, int partition, bool (*is_wanted)(uint32 first, uint32 of),
                uint32 of);

} // namespace stacksaga
