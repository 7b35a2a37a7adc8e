// Walks along an index, many at a time, under the snapshot of the query that runs: its entries
// first, and the rows only of those entries that are of interest.
#pragma once
#include "pg/table/lookup.hpp"

namespace stacksaga::pg {

/// A table and an index of its description, open until close().
class OpenIndex {
public:
    /// nullopt when the index cannot be read, or not under old snapshots.
    static std::optional<OpenIndex> open(Table &table, size_t index);
    template <class I> static std::optional<OpenIndex> open(Table &table, I index) {
        return open(table, static_cast<size_t>(index));
    }
    void close();

    Relation table;
    Relation index;
};

/// The row that the columns after the equal ones are compared with: (created_at, saga_id) <
/// (..).
struct RowBound {
    AttrNumber column; ///< of the index; the next one is the second
    TimestampTz time;
    pg_uuid_t id;
};

class IndexWalk {
public:
    /// Reads the places of rows, or also the entries themselves.
    enum class Entries : uint8 { places, values };

    IndexWalk(const OpenIndex &opened, std::span<const KeyColumn> key,
              const std::optional<RowBound> &before, ScanDirection direction, Entries entries);
    void close();

    /// Begins again with the same number of columns, and no row to compare with.
    void seek(std::span<const KeyColumn> key);
    /// To the next entry, whether or not its row is there still; false at the end.
    bool next_entry();
    /// A column of the entry, of a walk that reads values; none of saga's indexed ones is null.
    Datum value(AttrNumber column) const;
    /// The first columns of it, which takes less time than one after the other.
    void values(std::span<Datum> columns) const;
    /// The page of the index that the entry was on.
    BlockNumber page() const { return static_cast<BTScanOpaque>(scan_->opaque)->currPos.currPage; }
    /// Where the row of the entry is, for row_at().
    ItemPointerData place() const { return scan_->xs_heaptid; }
    /// The row of the entry; nullptr when the snapshot does not see it. It stays until the next
    /// call.
    TupleTableSlot *row();
    /// The row of an entry that was met before; after it the walk may not go on.
    TupleTableSlot *row_at(const ItemPointerData &place);
    /// The row of the next entry that has one.
    TupleTableSlot *next_row();

private:
    static constexpr size_t key_columns_max = 4;

    IndexScanDesc scan_;
    TupleTableSlot *slot_;
    ScanDirection direction_;
};
static_assert(std::is_trivially_destructible_v<IndexWalk>);

} // namespace stacksaga::pg
