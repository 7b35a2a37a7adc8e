// A session's state of a Table, and how its relations are opened: for pg/table*.cpp alone.
#pragma once
#include "pg/table/table.hpp"

namespace stacksaga::pg {

/// A column of an index that was checked.
struct IndexColumn {
    Oid collation;
    std::array<FmgrInfo, BTMaxStrategyNumber> compare; ///< by strategy - 1
};

struct CheckedIndex {
    Oid id;               ///< not valid: there is none of that name
    const char *obstacle; ///< to reading it; null: there is none. A literal
    bool is_too_new;      ///< for old snapshots
    std::array<IndexColumn, index_columns_max> columns;
};

struct SqlText; // table_sql.cpp

/// Lives as long as the session.
struct TableState {
    const TableDescription *description;
    TableState *next; ///< of all tables that the session has used
    Oid relation;
    bool is_checked;        ///< and has not changed since
    uint64 changes;         ///< that the session has noticed
    const char *obstacle;   ///< null: access is direct. A literal
    const char *unreadable; ///< null: rows can be read by the indexes that have no obstacle
    /// Whether each trigger of the description fires when SQL updates a row.
    std::array<bool, table_triggers_max> fires;
    /// The indexes that the table had at the check, as far as there is room.
    size_t index_count;
    std::array<Oid, 2 * table_indexes_max> index_ids;
    CheckedIndex *indexes; ///< as many as the description has
    SqlText *statements;   ///< that have been used
    /// The relations kept open, and the subtransaction whose resource owner closes it after an
    /// error; null, or none, outside of with_tables().
    Relation kept_heap;
    std::array<Relation, table_indexes_max> kept_indexes;
    SubTransactionId kept_in;
    ResourceOwner kept_by;
};

TableState &state_of(Table &table);

/// A table that is open during an operation. After an error its resource owner closes it; the locks
/// last as long as the transaction.
struct OpenTable {
    TableState &state;
    Relation heap;
    LOCKMODE mode;
    std::array<Relation, table_indexes_max> indexes{}; ///< those that it has opened

    const TableDescription &description() const { return *state.description; }
    bool is_direct() const { return state.obstacle == nullptr; }
    const char *unreadable(size_t i) const {
        return state.unreadable != nullptr ? state.unreadable : state.indexes[i].obstacle;
    }
    Relation index(size_t i);
    void close();
};
static_assert(std::is_trivially_destructible_v<OpenTable>);

/// Locks and opens the table, and checks it where that is due.
OpenTable open_table(Table &table, LOCKMODE mode);

/// Compares the table with its description, and keeps the result in `state`.
void check_table(TableState &state, Relation heap);

/// The bytes of a new row, or of a new version of one.
struct RowImage {
    std::array<Datum, table_columns_max> values{};
    std::array<bool, table_columns_max> nulls{};

    void assign(const TableDescription &table, std::span<const Assignment> assignments);
    /// Raises 23502.
    void require_complete(const TableDescription &table, Relation heap) const;
    TableRow row(const TableDescription &table) {
        return {std::span(values).first(table.columns.size()),
                std::span(nulls).first(table.columns.size())};
    }
};

/// 25006 and 25000 as PostgreSQL has them, with the name of a command.
void require_writing(const char *command);

/// 40001 with PostgreSQL's own message.
[[noreturn]] void raise_concurrent_update();

/// Whether rows that the transaction's snapshot does not see are to be refused.
bool refuses_newer_versions(const TableDescription &table);

// Direct access. The table is open in the mode that the operation wants.
std::span<TableRow> find_directly(OpenTable &table, const TableScan &scan);
void insert_directly(OpenTable &table, std::span<const std::span<const Assignment>> rows);
void insert_visible_directly(OpenTable &table, std::span<const Assignment> row);
bool insert_if_absent_directly(OpenTable &table, std::span<const Assignment> row, KnownRow known);
bool update_directly(OpenTable &table, TableRow &row, std::span<const Assignment> changes);
bool remove_directly(OpenTable &table, const TableRow &row);

/// Whether the transaction's snapshot sees the version in `slot`.
bool is_in_snapshot(Relation heap, TupleTableSlot *slot);

/// A row in the current memory context, under a snapshot that protects what lies in TOAST. `tuple`
/// becomes part of it.
TableRow make_row(const TableDescription &table, HeapTuple tuple, TupleDesc columns);

/// Scan keys for what the first columns of index `i` equal.
void equality_keys(const OpenTable &table, size_t i, std::span<const Datum> values,
                   std::span<ScanKeyData> keys);

// The same through SQL.
std::span<TableRow> find_by_sql(TableState &table, const TableScan &scan);
void insert_by_sql(TableState &table, std::span<const Assignment> row);
bool insert_if_absent_by_sql(TableState &table, std::span<const Assignment> row);
bool update_by_sql(TableState &table, TableRow &row, std::span<const Assignment> changes);
bool remove_by_sql(TableState &table, const TableRow &row);

} // namespace stacksaga::pg
