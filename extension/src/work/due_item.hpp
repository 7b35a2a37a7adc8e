// One due row of the table `work`, as searches hand it to those who do what is due.
#pragma once
#include "core/saga/saga_state.hpp"
#include "core/saga/work_purpose.hpp"

#include "pg/pg.hpp"

namespace stacksaga {

/// Where a due work row was seen; a hint until its saga is locked.
struct DueItem {
    pg_uuid_t saga_id;
    int32 slot;
    core::WorkPurpose purpose;
    int16 step_no;
    core::Direction direction;
    int32 attempt = 0; ///< attempts so far
};

} // namespace stacksaga
