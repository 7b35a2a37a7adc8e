// A lock on a key whose row may not be there yet.
//
// A row lock needs a row, and inserting one waits for a session that is inserting the same: neither
// says "in progress elsewhere" at once. And in REPEATABLE READ a write that had to wait fails
// (40001), since what it waited for is newer than its statement's snapshot. So a session that
// writes the row of a key first takes this lock, then reads with a new snapshot. It holds the lock
// to the end of the (sub)transaction, like a row lock, and the room in the
// server's lock table (max_locks_per_transaction) limits how many one transaction holds.
#pragma once
#include "core/ring/token.hpp"

#include "pg/lock.hpp"
#include "pg/statement/scope.hpp"

namespace stacksaga {

/// Takes the lock on a key, waiting as long as lock_timeout allows. Taking it twice costs nothing.
void lock_key(pg::LockClass kind, core::Token token);

/// Takes the lock if no other session has it; whether it did.
bool try_lock_key(pg::LockClass kind, core::Token token);

/// An ErrorContextCallback: the lock table is full (53200), be it for a key's lock or for one that
/// its statement needs. PostgreSQL's own hint does not know of the keys.
void explain_full_lock_table(void *);

/// Runs `body`, which locks and writes a key.
template <class F> auto explaining_locks(F &&body) -> decltype(body()) {
    ErrorContextCallback context{error_context_stack, explain_full_lock_table, nullptr};
    error_context_stack = &context;
    if constexpr (std::is_void_v<decltype(body())>) {
        body();
        error_context_stack = context.previous;
    } else {
        auto result = body();
        error_context_stack = context.previous;
        return result;
    }
}

/// The same inside an SPI connection.
template <class F> auto with_key(F &&body) -> decltype(body()) {
    return explaining_locks([&] { return pg::with_spi(static_cast<F &&>(body)); });
}

} // namespace stacksaga
