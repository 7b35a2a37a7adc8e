// Removing idempotency keys and accepted messages whose retention is over.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// Removes up to `limit` of them, the oldest first, and returns how many it removed; those that
/// another session is writing are left for another time. Inside with_spi.
int64 remove_expired_keys(int64 limit);

} // namespace stacksaga
