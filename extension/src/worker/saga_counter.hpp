// Counts sagas by status where that is due, in a process of its own: reading a table of ten million
// takes seconds, and a worker must not spend them.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// In a transaction. Where no background worker slot is free nothing happens, and the next call
/// tries again.
void ensure_sagas_are_counted();

} // namespace stacksaga
