// Workers whose process does not run in the middle of a transaction, because it was stopped or its
// machine does not schedule it. They keep the slots of their batch, which no node can take over.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// Ends the process of each worker of this database that has not run for
/// stacksaga.worker_stall_timeout in the middle of a transaction. Outside of a transaction.
void end_stalled_workers();

} // namespace stacksaga
