// The entries of a B-tree from an entry on, page by page: less than half of what a scan takes for
// each, for where tens of thousands are read and few of their rows.
//
// A page is read as a scan reads it: all of it under its lock, and then the page to its right as it
// was named then, so that a page that is split meanwhile is neither missed nor read twice. Entries
// of dead rows are among them, also those marked dead, which on a standby may be alive: a
// caller that wants a row fetches it under the snapshot that the walk began under. While that is
// held no page that the walk may still come to is recycled.
#pragma once
#include "pg/table/index_walk.hpp"

namespace stacksaga::pg {

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
