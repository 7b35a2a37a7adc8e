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

// The entries of a B-tree from an entry on, page by page: less than half of what a scan takes for
// each, for where tens of thousands are read and few of their rows.
//
// A page is read as a scan reads it: all of it under its lock, and then the page to its right as it
// was named then, so that a page that is split meanwhile is neither missed nor read twice. Entries
// of dead rows are among them, also those marked dead, which on a standby may be alive: a
// caller that wants a row fetches it under the snapshot that the walk began under. While that is
// held no page that the walk may still come to is recycled.

/// Of an index on (text, timestamptz, uuid), none of them null, and no text of more than 255 bytes.
struct LeafEntry {
    std::string_view text;
    TimestampTz time;
    const pg_uuid_t *id;
    ItemPointerData row;
};

class LeafWalk {
public:
    /// `first`: a page of the index; the first entries of it may come before what is looked for.
    LeafWalk(const OpenIndex &opened, BlockNumber first) : index_(opened.index), next_(first) {}

    /// Maximum number of entries on a page.
    static constexpr size_t entries_max = MaxTIDsPerBTreePage;

    /// Calls `visit` for each entry of the next page until it returns false. What it is given is
    /// gone afterwards, and the page is locked meanwhile. False: no page is left, or it did.
    template <class F> bool next_page(F &&visit);

private:
    Buffer lock_next();
    static LeafEntry entry_of(IndexTuple tuple);

    Relation index_;
    BlockNumber next_;
};

template <class F> bool LeafWalk::next_page(F &&visit) {
    const Buffer buffer = lock_next();
    if (!BufferIsValid(buffer))
        return false;
    const Page page = BufferGetPage(buffer);
    auto *opaque = reinterpret_cast<BTPageOpaque>(PageGetSpecialPointer(page));
    const OffsetNumber last = PageGetMaxOffsetNumber(page);
    bool goes_on = true;
    for (OffsetNumber at = P_FIRSTDATAKEY(opaque); goes_on && at <= last; ++at) {
        auto *tuple = reinterpret_cast<IndexTuple>(PageGetItem(page, PageGetItemId(page, at)));
        LeafEntry entry = entry_of(tuple);
        const int rows = BTreeTupleIsPosting(tuple) ? BTreeTupleGetNPosting(tuple) : 1;
        for (int i = 0; goes_on && i < rows; ++i) {
            entry.row =
                *(BTreeTupleIsPosting(tuple) ? BTreeTupleGetPostingN(tuple, i) : &tuple->t_tid);
            goes_on = visit(entry);
        }
    }
    next_ = opaque->btpo_next;
    UnlockReleaseBuffer(buffer);
    return goes_on && next_ != P_NONE;
}

} // namespace stacksaga::pg
