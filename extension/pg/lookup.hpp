// Rows by an index, straight from it and its table: a quarter of what the executor needs for one of
// them, and no plan that could choose another way once the tables have grown.
// Tables and indexes are named by literals.
// For reads that are a hint or that are final; whoever must know that a row is absent asks by a
// Statement, which also finds it where the table has been distributed or partitioned.
#pragma once
#include "pg/table.hpp"

namespace stacksaga::pg {

inline constexpr size_t key_columns_max = 5;

/// A column of the key: its comparison function (F_INT8EQ, F_TEXTEQ, ..), collation and value, and
/// what it is to the value; only the last ones may be unequal.
struct KeyColumn {
    RegProcedure compare;
    Oid collation;
    Datum value;
    StrategyNumber strategy = BTEqualStrategyNumber;
    AttrNumber column = 0; ///< of the index; 0: the one at its place in the key
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

/// Whether there is one in stacksaga.`index` of the table with these first columns.
bool has_row(const char *table, const char *index, std::span<const KeyColumn> prefix);

/// Whether another transaction has changed the row, or is changing it, in a way that this one does
/// not see yet. Of a row that visit_rows() shows.
bool is_being_changed(TupleTableSlot *row);

/// Whether the row was written after this transaction's snapshot was taken, under REPEATABLE READ
/// and above. Of a row that visit_rows() shows.
bool is_newer_than_snapshot(TupleTableSlot *row);

/// A table, open to be read at several places of an index under one snapshot.
class IndexReader {
public:
    IndexReader(Relation table, Relation index, ScanDirection direction);
    void close();

    /// To the first row with this key.
    void seek(std::span<const KeyColumn> key);
    /// The next one in the order of the index; nullptr: there is none. It stays until the next
    /// call.
    TupleTableSlot *next();
    /// Steps over so many entries of the index, without a look at their rows. False: it ended.
    bool skip(size_t entries);

private:
    Relation table_;
    Relation index_;
    ScanDirection direction_;
    Snapshot snapshot_;
    TupleTableSlot *slot_;
    IndexScanDesc scan_ = nullptr;                           ///< the one that was sought last
    std::array<IndexScanDesc, key_columns_max + 1> scans_{}; ///< by the number of key columns
};
static_assert(std::is_trivially_destructible_v<IndexReader>);

/// Calls `body`, which must not change the table, with a reader of stacksaga.`index`. False when
/// that cannot be: it is no plain table (somebody has partitioned it, say), so a Statement has to
/// read it.
using ReaderBody = void (*)(IndexReader &reader, void *state);
bool read_index(const char *table, const char *index, ScanDirection direction, ReaderBody body,
                void *state);
template <ScanDirection direction = ForwardScanDirection, class F>
bool with_index(const char *table, const char *index, F &&body) {
    using Body = std::remove_reference_t<F>;
    return read_index(
        table, index, direction,
        [](IndexReader &reader, void *state) { (*static_cast<Body *>(state))(reader); }, &body);
}

/// The same for an index of a described table, by its place in the description. While with_tables()
/// keeps the table open, reading it takes no lock of its own. False where it is not accessed
/// directly.
bool read_index(Table &table, size_t index, ReaderBody body, void *state);
template <class I, class F> bool with_index(Table &table, I index, F &&body) {
    using Body = std::remove_reference_t<F>;
    return read_index(
        table, static_cast<size_t>(index),
        [](IndexReader &reader, void *state) { (*static_cast<Body *>(state))(reader); }, &body);
}

/// What is done with a row; false ends it. What it reads of the slot lives until it returns.
using RowVisitor = bool (*)(TupleTableSlot *row, void *state);
void visit_rows(const char *table, const char *index, std::span<const KeyColumn> prefix,
                RowVisitor visitor, void *state);

/// Calls `visit` with the slot of each row that begins so in stacksaga.`index`, in its order, until
/// it returns false. It must not change the table.
template <class F>
void each_row(const char *table, const char *index, std::span<const KeyColumn> prefix, F &&visit) {
    using Visit = std::remove_reference_t<F>;
    visit_rows(
        table, index, prefix,
        [](TupleTableSlot *row, void *state) { return (*static_cast<Visit *>(state))(row); },
        &visit);
}

/// The same for a described table, which must be accessed directly.
void visit_rows(Table &table, size_t index, std::span<const KeyColumn> prefix, RowVisitor visitor,
                void *state);
template <class I, class F>
void each_row(Table &table, I index, std::span<const KeyColumn> prefix, F &&visit) {
    using Visit = std::remove_reference_t<F>;
    visit_rows(
        table, static_cast<size_t>(index), prefix,
        [](TupleTableSlot *row, void *state) { return (*static_cast<Visit *>(state))(row); },
        &visit);
}

} // namespace stacksaga::pg
