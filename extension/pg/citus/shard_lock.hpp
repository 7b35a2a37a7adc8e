// Keeping a shard of Citus where it is from a transaction's first read of it on.
//
// Citus moves a shard away from a transaction that has only read it, and sends what that
// transaction writes afterwards to where the shard was: it knows a shard's connection by an id that
// does not change with the move (seen with 13.2.2). The rows are lost with the old shard. A lock
// that Citus's own writes take keeps moves waiting, or waits for one that has begun.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// To be called before the first read of rows with this token in a transaction that may write some
/// of them. Nothing where Citus does not manage the table, and in a transaction that reads only.
/// Inside with_spi.
void hold_shard(Oid table, int64 token);
void hold_shard(const char *table, int64 token);

} // namespace stacksaga::pg
