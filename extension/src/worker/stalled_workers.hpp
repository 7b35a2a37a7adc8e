// Workers whose process does not run in the middle of a transaction: it was stopped, or its machine
// lets it not run. They keep the slots of their batch, which nobody can take over.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// Ends the process of each worker of this database that has not run for
/// stacksaga.worker_stall_timeout in the middle of a transaction. Outside of a transaction.
void end_stalled_workers();

} // namespace stacksaga
