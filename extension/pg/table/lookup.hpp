// Rows by an index, straight from it and its table: a quarter of what the executor needs for one of
// them, and no plan that could choose another way once the tables have grown.
//
// Where an index cannot be read so (somebody has changed the table, the index is invalid or gone),
// an error says why, and no caller takes that for "there is no such row". A caller
// with a Statement for such a table asks try_index().
#pragma once
#include "core/work/commit_horizon.hpp"

#include "pg/errors.hpp"
#include "pg/table/table.hpp"

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

/// Whether another transaction has changed the row, or is changing it, in a way that this one does
/// not see yet. Of a row that each_row() shows.
bool is_being_changed(TupleTableSlot *row);

/// Whether the row was written after this transaction's snapshot was taken, under REPEATABLE READ
/// and above. Of a row that each_row() shows.
bool is_newer_than_snapshot(TupleTableSlot *row);

/// The holder of a row: the transaction that keeps others from locking it FOR NO KEY UPDATE. It
/// still runs, and is another than this one, or a subtransaction of it; InvalidTransactionId:
/// there is none, or the row is not kept as heap tables keep theirs. Of a row that an IndexReader
/// shows.
TransactionId holder_of(TupleTableSlot *row);

/// A table, open to be read at several places of an index under one snapshot: what is committed
/// now, and what the transaction has written.
class IndexReader {
public:
    IndexReader(Relation table, Relation index, ScanDirection direction);
    void close();

    /// To the first row with this key.
    void seek(std::span<const KeyColumn> key);
    /// The next one in the order of the index; nullptr: there is none. It stays until the next
    /// call.
    TupleTableSlot *next();
    /// Steps over `entries` entries of the index, without a look at their rows. False: it ended.
    bool skip(size_t entries);
    /// The next one, as long as no more entries of the index are read than this, which counts down;
    /// nullptr with some left: there is none.
    TupleTableSlot *next_within(size_t &entries);

    core::SeenTransactions seen() const {
        return {.oldest = snapshot_->xmin, .next = snapshot_->xmax};
    }

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

/// Calls `body`, which must not change the table, with a reader of an index, by its place in the
/// description. While with_tables() keeps the table open, reading it takes no lock of its own.
/// False when the index cannot be read.
using ReaderBody = void (*)(IndexReader &reader, void *state);
bool read_index(Table &table, size_t index, ScanDirection direction, ReaderBody body, void *state);

template <ScanDirection direction = ForwardScanDirection, class I, class F>
[[nodiscard]] bool try_index(Table &table, I index, F &&body) {
    using Body = std::remove_reference_t<F>;
    return read_index(
        table, static_cast<size_t>(index), direction,
        [](IndexReader &reader, void *state) { (*static_cast<Body *>(state))(reader); }, &body);
}

/// Raises the error that says why an index cannot be read.
[[noreturn]] void raise_unreadable(Table &table, size_t index);

/// The same as try_index() for an index that must be readable.
template <ScanDirection direction = ForwardScanDirection, class I, class F>
void with_index(Table &table, I index, F &&body) {
    if (!try_index<direction>(table, index, static_cast<F &&>(body)))
        raise_unreadable(table, static_cast<size_t>(index));
}

/// Calls `visit` with the slot of each row that begins so in an index, in its order, until it
/// returns false. It must not change the table.
template <class I, class F>
void each_row(Table &table, I index, std::span<const KeyColumn> prefix, F &&visit) {
    with_index(table, index, [&](IndexReader &reader) {
        reader.seek(prefix);
        TupleTableSlot *row;
        while ((row = reader.next()) != nullptr && visit(row))
            ;
    });
}

/// Whether there is a row that begins so in an index.
template <class I> bool has_row(Table &table, I index, std::span<const KeyColumn> prefix) {
    bool is_found = false;
    each_row(table, index, prefix, [&](TupleTableSlot *) {
        is_found = true;
        return false;
    });
    return is_found;
}

} // namespace stacksaga::pg
