// The consequences of a change of a saga's row, made by the engine or by an UPDATE: the transitions
// must allow it, it is counted, and the list of parked sagas follows.
#pragma once
#include "core/saga/saga_state.hpp"

#include "pg/pg.hpp"
#include "pg/table/table.hpp"

namespace stacksaga {

struct SagaChange {
    pg_uuid_t id;
    int64 token;
    bool is_child;
    bool has_attributes;
    core::Status from;
    core::Direction from_direction;
    core::Status to;
    core::Direction to_direction;
};

/// SG409 for a change that the transitions do not allow.
void apply_change(const SagaChange &change);

/// The same for rows that are accessed directly, in place of the trigger.
void apply_row_change(const pg::TableRow &before, const pg::TableRow &after);

} // namespace stacksaga
