// The consequences of a change of a saga's row, made by the engine or by an UPDATE: the transitions
// must allow it, it is counted, the list of parked sagas follows, and its event is published.
#pragma once
#include "pg/pg.hpp"
#include "pg/table/table.hpp"

namespace stacksaga {

/// SG409 for a change that the transitions do not allow. Where the table is accessed directly it
/// stands in for the trigger, which calls it otherwise. Inside with_spi.
void apply_row_change(const pg::TableRow &before, const pg::TableRow &after);

} // namespace stacksaga
