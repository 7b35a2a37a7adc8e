// One due item of work, as workers and run_pending() do it.
#pragma once
#include "src/handler/handler_error.hpp"
#include "src/saga/saga.hpp"

namespace stacksaga {

/// Where a due work row was seen; a hint until its saga is locked.
struct DueItem {
    pg_uuid_t saga_id;
    int32 slot;
    int16 step_no;
    core::Direction direction;
    int32 attempt = 0; ///< attempts so far
};

/// Locks the item's saga and does what is due: runs a sql step or a verify function, settles a
/// lease that ran out, passes a deadline. False when there was nothing to do (any more), or another
/// session holds the saga. Inside with_spi.
bool run_item(const DueItem &item, std::string_view worker);

/// Writes down that the item's handler failed, unless somebody else has dealt with it since.
void fail_item(const DueItem &item, std::string_view worker, const HandlerError &error);

} // namespace stacksaga
