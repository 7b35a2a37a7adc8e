// Temporary objects of a session that runs handlers: after each call they are as before it.
//
// A worker's session has none before a handler, and that of run_pending() may have the caller's.
// Objects that a handler has created are dropped when it returns, also with ON COMMIT: no other
// call finds it. A handler that changes what was there before is left to a worker.
#pragma once
#include "pg/pg.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga {

extern const pg::TransactionUser temporary_object_events;

/// At the start of run_pending(): notes what the caller has.
void note_temporary_objects();

/// Before a handler of this role is called. In run_pending(): whether the caller has none that
/// belong to a role which could not act as `definer`; the handler could take them for its own.
bool may_find_temporary_objects(Oid definer);
void begin_temporary_objects();

/// The handler executes a statement that is not a query. GRANT changes a table without using it.
void note_utility_of_handler();

/// After the handler has returned: drops what it has created, which runs nobody's code. False where
/// what was there before has changed.
bool drop_temporary_objects();

/// To be called with each relation that a statement is about to write. Leaves a handler to a worker
/// that writes a temporary table of the caller's.
void check_written(Oid relation);

} // namespace stacksaga
