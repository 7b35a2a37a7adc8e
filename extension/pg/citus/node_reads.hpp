// Reports of this node alone, on Citus: any statement that says so reads the shards that are here.
//
// Citus plans no report of ours: it joins no distributed table with one that is not, and knows no
// LATERAL and no parameter of a function there. And a node should answer for itself while another
// one is down. So a query that names
//
//   WITH stacksaga_this_node AS (SELECT)
//
// reads the shards of this node wherever it, or a view or subquery in it, names a table that Citus
// manages. PostgreSQL drops such a WITH from the plan, so without Citus it costs nothing. It is of
// the query and not of the session, since plans are kept. A change of the shards has Citus
// invalidate the table, and with it the plan.
//
// A role that may read a view, and not its tables, reads this node as well: Citus knows no rights
// of a view's owner on other nodes.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// Called before a query is planned, which it changes.
void read_this_node(Query *query);

} // namespace stacksaga::pg
