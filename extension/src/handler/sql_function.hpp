// A function in SQL, run from plans that the session keeps. Before version 18 PostgreSQL plans such
// a function again in each query, and in each subtransaction, that calls it.
//
// It does what PostgreSQL's fmgr_sql() does, for the bodies that handlers have: text, of statements
// that have plans. Others are left to fmgr_sql().
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

struct SqlFunction;

/// Plans the statements of `function`, which must have one argument, for the role and with the
/// search_path that are current, inside a snapshot. Lives until it is freed.
SqlFunction *prepare_sql_function(Oid function);

/// Whether it is of `function` as that is now.
bool is_of(const SqlFunction &prepared, Oid function);

/// Whether it can be run. If not, it is left to fmgr_sql(), or something that
/// its statements name has changed, and it is to be prepared again.
bool can_be_run(const SqlFunction &prepared);

/// It cannot be run here as long as the function stays as it is.
bool is_left_to_fmgr(const SqlFunction &prepared);

/// Raises what the function raises. The result lives in the current memory context.
Datum run_sql_function(SqlFunction &prepared, Datum argument, bool *isnull);

void free_sql_function(SqlFunction *prepared);

} // namespace stacksaga
