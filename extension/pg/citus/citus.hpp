// How Citus manages the tables of this database, where it is loaded.
//
// It keeps the rows of a table that it manages in shards, on this node or others, and leaves the
// table itself empty. Its planner finds them; a reader of the table's own pages finds nothing.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// Whether Citus is loaded: it is so for the life of a server.
inline bool is_citus_loaded() {
    static constinit std::optional<bool> known{};
    if (!known)
        known = GetConfigOption("citus.shard_count", true, false) != nullptr;
    return *known;
}

/// Whether Citus has distributed the table, or keeps it in another way. Known without a look at its
/// catalog until the session notices a change of any relation; false at once without Citus.
bool is_managed_by_citus(Oid relation);

/// Whether Citus has distributed it by the values of a column.
bool is_distributed_by_citus(Oid relation);

/// Whether a statement names a table that Citus manages, as stacksaga.NAME.
bool names_table_of_citus(std::string_view sql);

/// The first table, or other relation, that a statement names as stacksaga.NAME, and where the name
/// ends.
Oid first_table(std::string_view sql, size_t &end);

/// Calls `visit` for each of them, with the text from the one before up to the end of its name.
/// Returns what follows the last.
template <class F> std::string_view each_table(std::string_view sql, F &&visit) {
    size_t end = 0;
    for (Oid relation; OidIsValid(relation = first_table(sql, end)); sql.remove_prefix(end))
        visit(std::string_view{sql.data(), end}, relation);
    return sql;
}

/// Another number whenever what the two above return may have changed; 0 without Citus.
uint64 state_of_citus();

} // namespace stacksaga::pg
