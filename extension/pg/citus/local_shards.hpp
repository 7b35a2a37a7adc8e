// Statements that read this node alone: on Citus the shards that it holds.
//
// Citus sends a statement on one of its tables to all nodes unless the statement names the token,
// and plans it again each time. A search for work wants rows of this node, by an index, and only as
// a hint. So its statement names the shards themselves. The caller locks and changes a row that it
// found through the table, where Citus knows by then whether the shard has moved.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// The statement with each stacksaga.NAME that is a table of Citus replaced by its shards on this
/// node, as a subquery, so each NAME has an alias; `sql` itself where there is none of them. What
/// it returns for the same tables changes only when state_of_citus() does. Inside with_spi.
const char *with_local_shards(const char *sql);

/// A query of all rows, and all columns in their order, that the shards of a table of Citus hold on
/// this node. Inside with_spi.
const char *shards_of(Oid relation);

} // namespace stacksaga::pg
