// Triggers that a handler leaves for the end of the transaction: deferred constraint triggers. They
// are fired before the next role's code runs, as the role that has queued them.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// To be called before each query and each utility statement: they bound the rounds of triggers
/// that queue others.
void note_query_of_trigger();
void note_utility_of_trigger(const Node *statement);

/// Before the handler can change a constraint: others may have made one since all of them were set
/// to immediate, and a handler that failed after that has undone what was done about it.
void defer_what_has_become_deferred();

/// Fires, as the role that is current, what the handler has deferred, and what those triggers defer
/// in their turn, until nothing is queued. 54001 after 1,000 rounds.
void fire_deferred_constraints();

/// SET CONSTRAINTS lasts to the end of the transaction. Resets what the handler has set, so that
/// the next handler and the caller of run_pending() find deferred what is deferred from the start.
void reset_constraints();

/// Fires the deferred triggers of the transaction that run_pending() is called in, as its role and
/// with its search_path: after a handler they would be fired as the definer of that one.
void check_constraints_of_caller();

} // namespace stacksaga
