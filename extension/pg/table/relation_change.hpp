// Telling who keeps what it knows of relations that one has changed. PostgreSQL has room for ten
// such callbacks in a process, and Citus takes five of them: those of the extension share one.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// Calls `callback` for each change of a relation that the session notices; with InvalidOid when
/// all may have changed. To be called once for a callback.
void watch_relations(RelcacheCallbackFunction callback);

/// A number that rises, and never is 0, with each change of a relation that others have committed
/// or this transaction has made: as long as it stays the same, so does what was read of tables
/// whose writers announce_change().
uint64 relations_state();

/// Tells all sessions, when this transaction commits, that stacksaga.`table` has changed: rows too,
/// of which PostgreSQL itself tells nobody.
void announce_change(const char *table);

} // namespace stacksaga::pg
