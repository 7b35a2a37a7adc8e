// Counting sagas by status where that is due, in a process of its own: reading a table of ten
// million takes seconds, in which a worker has other things to do.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// In a transaction. Where no background worker slot is free nothing happens, and the next call
/// tries again.
void ensure_sagas_are_counted();

} // namespace stacksaga
