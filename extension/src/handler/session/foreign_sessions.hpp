// Sessions at other servers that a handler opens: connections of dblink, and those that
// foreign-data wrappers keep. They belong to the process, and the next handler or the caller of
// run_pending() would use them as its own.
#pragma once
#include "pg/pg.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga {

extern const pg::TransactionUser foreign_session_events;

/// A function that is not PostgreSQL's own is about to be executed, by a handler or not. Leaves a
/// handler to a worker where it could find a dblink connection of the session.
void note_function_of_others(Oid function);

/// Before a handler in run_pending(): leaves it to a worker where it may already have an expression
/// ready that uses a dblink connection of the session.
void hide_dblink_connections();

/// Closes the dblink connections that handlers have opened, and has wrappers close their sessions:
/// at once, or where the transaction uses one, at its end.
void close_foreign_sessions();

/// Without those of dblink: what can be done while a transaction aborts.
void close_idle_foreign_sessions();

/// Notes whether dblink is there already. To be called once, when the module is loaded.
void look_for_dblink();

} // namespace stacksaga
