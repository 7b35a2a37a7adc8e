// The check of plans that go by an index, for tests: stacksaga.check_plans.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// Raises XX000 when the plan reads a table that grows in another way than by a condition on an
/// index, or in an index's order, or joins or sorts what it has read of one.
void check_plan(const PlannedStmt &plan, const char *text);

} // namespace stacksaga::pg
