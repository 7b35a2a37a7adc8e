// Whether what was read from the catalogs, or kept for a function's next call, still holds.
#pragma once
#include "pg/pg.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga {

extern const pg::TransactionUser catalog_watch_events;

/// Rises with every change of a function, type, schema, role, membership or database that this
/// session has made or heard of. What was found when it had its present value still holds.
uint64 catalog_state();

/// Rises with those, with a change of any relation or operator, when a transaction ends, and when a
/// subtransaction is rolled back. What a function keeps for its next call, plans among it, is good
/// for as long as this stays the same.
uint64 call_state();

} // namespace stacksaga
