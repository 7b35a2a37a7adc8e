// What a handler finds, and leaves, in a session that is not a worker's: that of run_pending().
//
// Temporary objects, open cursors and session locks outlive a handler there, and the session's next
// statements run as another role: it would take a temporary view for the table of that name. In the
// other direction a handler could take a temporary table of the session for one of its own. Such a
// handler is left to a worker.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// The temporary objects of the session, before a handler of `definer` is called. Raises where the
/// handler is to be left to a worker: one of them belongs to a role that could not act as
/// `definer`.
const char *enter_session(Oid definer);

/// After it has returned, in its subtransaction. Raises where it has left something behind.
void leave_session(const char *temporary_objects);

/// Refuses session locks to handlers from now on. To be called once, when the module is loaded.
void guard_session_locks();

} // namespace stacksaga
