// One row by its primary key, straight from index and table: a quarter of what the executor needs.
// For reads that are a hint or that are final; whoever must know that a row is absent asks by a
// Statement, which also finds it where the table has been distributed or partitioned.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// A column of the key: its equality function (F_INT8EQ, F_TEXTEQ, ..), collation and value.
struct KeyColumn {
    RegProcedure equals;
    Oid collation;
    Datum value;
};

/// Reads the latest committed row (or the transaction's own) of stacksaga.`table` whose primary key
/// is `key`, its columns in their order into `values` and `nulls`, which have the table's size.
/// False when it is not there. What the values point to lives in the current memory context.
bool find_row(const char *table, std::span<const KeyColumn> key, std::span<Datum> values,
              std::span<bool> nulls);

/// The same for the row with the greatest primary key of those whose key begins with `prefix`.
bool find_last_row(const char *table, std::span<const KeyColumn> prefix, std::span<Datum> values,
                   std::span<bool> nulls);

/// Whether there is a row with these first columns of the primary key.
bool has_row(const char *table, std::span<const KeyColumn> prefix);

} // namespace stacksaga::pg
