// The state that a handler finds, and leaves, in the session that runs it.
//
// Open cursors, session locks and temporary objects outlive a handler. In run_pending() the
// session's next statements run as another role: it would take a temporary view for the table of
// that name. In the other direction a handler could take a temporary table of the session for one
// of its own. What can be taken away is taken away when the handler returns; otherwise it is left
// to a worker.
#pragma once
#include "pg/pg.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga {

extern const pg::TransactionUser session_guard_events;

/// Before a handler of `definer` is called. Raises where the handler is to be left to a worker: a
/// temporary object of the session belongs to a role that could not act as `definer`.
void enter_session(Oid definer);

/// After it has returned: takes away what it has left, or raises where that cannot be.
void leave_session();

/// Raises: the handler that is running is left to a worker. A handler that catches the error is
/// left to it all the same.
[[noreturn]] void leave_to_worker(const char *why);

/// At the end of run_pending(): what a handler that failed has left, too.
void clear_session();

/// To be called before each call of a function. Session locks are neither given back by a rollback,
/// nor can be told from those that the session had before: so the functions that take them, or give
/// them back, are refused to handlers.
void check_function(Oid function);

} // namespace stacksaga
