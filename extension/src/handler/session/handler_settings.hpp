// The settings of a handler in run_pending(): those of a new session of its definer, whatever the
// caller has set. A worker's session has settings that nobody changes.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// At the start of run_pending(): what the caller has set is looked at once, since nothing changes
/// it until the call returns.
void begin_handler_settings();

/// Sets what the session has otherwise than a new one of this role would, until the caller's nest
/// level of settings ends. Not changed: `stacksaga.*`, `work_mem`, `lock_timeout`,
/// `statement_timeout`, and what belongs to the connection, to the process or to the transaction.
void set_handler_settings(Oid definer);

} // namespace stacksaga
