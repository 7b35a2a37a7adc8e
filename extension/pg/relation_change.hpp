// Telling who keeps what it knows of relations that one has changed. PostgreSQL has room for ten
// such callbacks in a process, and Citus takes five of them: those of the extension share one.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// Calls `callback` for each change of a relation that the session notices; with InvalidOid when
/// all may have changed. To be called once for a callback.
void watch_relations(RelcacheCallbackFunction callback);

} // namespace stacksaga::pg
