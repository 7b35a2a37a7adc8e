// Plans that depend on the statement alone: not on the sizes of tables, on statistics, on the
// values of parameters, or on a session's planner settings.
//
// While a Statement with Plans::by_index is planned, every table is as large as one that has run
// for years, its columns have no statistics, and only index scans and nested loops are to be had
// for less than a fortune. So a plan that a session makes, and keeps, while the tables are empty is
// the one that it would make with a backlog of a million, and a test that has seen it once has seen
// it at every size.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// How a Statement's plan is made.
enum class Plans : uint8_t {
    by_index,     ///< as above; reads of tables that grow go by an index
    by_statistics ///< as PostgreSQL does: for reports that read much of a table
};

// Called by hooks.cpp for every statement that is planned.
PlannedStmt *plan_statement(planner_hook_type next, Query *query, const char *text, int options,
                            ParamListInfo params);
void set_relation_info(bool is_parent, RelOptInfo *relation);
bool hides_statistics(const RangeTblEntry *table);

/// The options under which SPI prepares a statement, by which it is recognised when it is planned.
int cursor_options(Plans plans, std::string_view text);

} // namespace stacksaga::pg
