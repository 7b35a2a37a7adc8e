#include "pg/table/lookup.hpp"

#include "pg/compat.hpp"
#include "pg/table/table_state.hpp"

namespace stacksaga::pg {

IndexReader::IndexReader(Relation table, Relation index, ScanDirection direction)
    : table_(table), index_(index), direction_(direction),
      snapshot_(RegisterSnapshot(GetLatestSnapshot())), slot_(table_slot_create(table, nullptr)) {}

void IndexReader::seek(std::span<const KeyColumn> key) {
    Assert(key.size() <= key_columns_max);
    std::array<ScanKeyData, key_columns_max> keys;
    for (size_t i = 0; i < key.size(); ++i) {
        const auto place = static_cast<AttrNumber>(i + 1);
        ScanKeyEntryInitialize(&keys[i], 0, key[i].column != 0 ? key[i].column : place,
                               key[i].strategy, InvalidOid, key[i].collation, key[i].compare,
                               key[i].value);
    }
    const int count = static_cast<int>(key.size());
    if (scans_[key.size()] == nullptr)
        scans_[key.size()] = begin_index_scan(table_, index_, snapshot_, count);
    scan_ = scans_[key.size()];
    index_rescan(scan_, keys.data(), count, nullptr, 0);
}

TupleTableSlot *IndexReader::next() {
    CHECK_FOR_INTERRUPTS();
    return index_getnext_slot(scan_, direction_, slot_) ? slot_ : nullptr;
}

bool IndexReader::skip(size_t entries) {
    while (entries > 0 && index_getnext_tid(scan_, direction_) != nullptr)
        --entries;
    return entries == 0;
}

TupleTableSlot *IndexReader::next_within(size_t &entries) {
    for (; entries > 0; --entries) {
        if (index_getnext_tid(scan_, direction_) == nullptr)
            return nullptr;
        // Of the versions of a row that share this entry a snapshot sees one at most.
        if (index_fetch_heap(scan_, slot_))
            return slot_;
    }
    return nullptr;
}

void IndexReader::close() {
    for (IndexScanDesc scan : scans_)
        if (scan != nullptr)
            index_endscan(scan);
    ExecDropSingleTupleTableSlot(slot_);
    UnregisterSnapshot(snapshot_);
}

bool is_being_changed(TupleTableSlot *row) {
    if (!TTS_IS_BUFFERTUPLE(row))
        return false;
    const HeapTupleHeader header = ExecFetchSlotHeapTuple(row, false, nullptr)->t_data;
    const auto is_unchanged = [](uint16 mask) {
        return (mask & HEAP_XMAX_INVALID) != 0 || HEAP_XMAX_IS_LOCKED_ONLY(mask);
    };
    if (is_unchanged(header->t_infomask))
        return false;
    // Whether the row is visible was just looked up, and a single change that was rolled back was
    // marked then. A multixact is not marked.
    const Buffer buffer = reinterpret_cast<BufferHeapTupleTableSlot *>(row)->buffer;
    LockBuffer(buffer, BUFFER_LOCK_SHARE);
    HeapTupleHeaderData copy = *header;
    LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
    if (is_unchanged(copy.t_infomask))
        return false;
    if ((copy.t_infomask & HEAP_XMAX_IS_MULTI) == 0)
        return true;
    const TransactionId updater = HeapTupleGetUpdateXid(&copy);
    return TransactionIdIsInProgress(updater) || TransactionIdDidCommit(updater);
}

bool is_newer_than_snapshot(TupleTableSlot *row) {
    if (!IsolationUsesXactSnapshot() || !TTS_IS_BUFFERTUPLE(row))
        return false;
    auto *buffered = reinterpret_cast<BufferHeapTupleTableSlot *>(row);
    LockBuffer(buffered->buffer, BUFFER_LOCK_SHARE);
    const bool is_seen = HeapTupleSatisfiesVisibility(ExecFetchSlotHeapTuple(row, false, nullptr),
                                                      GetTransactionSnapshot(), buffered->buffer);
    LockBuffer(buffered->buffer, BUFFER_LOCK_UNLOCK);
    return !is_seen;
}

bool read_index(Table &table, size_t index, ScanDirection direction, ReaderBody body, void *state) {
    OpenTable open = open_table(table, AccessShareLock);
    const bool is_readable = open.unreadable(index) == nullptr;
    if (is_readable) {
        IndexReader reader(open.heap, open.index(index), direction);
        body(reader, state);
        reader.close();
    }
    open.close();
    return is_readable;
}

void raise_unreadable(Table &table, size_t index) {
    const TableDescription &description = table.description();
    const char *reason = table.unreadable(index);
    ereport(ERROR,
            (errcode(sg409), errmsg("cannot read table \"stacksaga.%s\"", description.name),
             errdetail("It is read by the index \"%s\", and %s.", description.indexes[index].name,
                       reason != nullptr ? reason : "an index is not complete"),
             errhint("Undo what was changed: stacksaga.doctor() says how.")));
}

namespace {

/// As it is under the lock of its page.
HeapTupleHeaderData header_of(TupleTableSlot *row) {
    const HeapTupleHeader header = ExecFetchSlotHeapTuple(row, false, nullptr)->t_data;
    const Buffer buffer = reinterpret_cast<BufferHeapTupleTableSlot *>(row)->buffer;
    LockBuffer(buffer, BUFFER_LOCK_SHARE);
    const HeapTupleHeaderData copy = *header;
    LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
    return copy;
}

TransactionId if_it_runs(TransactionId xid) {
    const bool is_other =
        !TransactionIdIsCurrentTransactionId(xid) && TransactionIdIsInProgress(xid);
    return is_other ? xid : InvalidTransactionId;
}

TransactionId holder_among(MultiXactId members_id) {
    MultiXactMember *members = nullptr;
    const int count = GetMultiXactIdMembers(members_id, &members, false, false);
    TransactionId holder = InvalidTransactionId;
    for (int i = 0; i < count && !TransactionIdIsValid(holder); ++i)
        if (members[i].status != MultiXactStatusForKeyShare)
            holder = if_it_runs(members[i].xid);
    if (count > 0)
        pfree(members);
    return holder;
}

} // namespace

TransactionId holder_of(TupleTableSlot *row) {
    if (!TTS_IS_BUFFERTUPLE(row))
        return InvalidTransactionId;
    const HeapTupleHeaderData header = header_of(row);
    const uint16 mask = header.t_infomask;
    if ((mask & HEAP_XMAX_INVALID) != 0 || HEAP_LOCKED_UPGRADED(mask))
        return InvalidTransactionId;
    const TransactionId xmax = HeapTupleHeaderGetRawXmax(&header);
    if ((mask & HEAP_XMAX_IS_MULTI) != 0)
        return holder_among(xmax);
    return HEAP_XMAX_IS_KEYSHR_LOCKED(mask) ? InvalidTransactionId : if_it_runs(xmax);
}

} // namespace stacksaga::pg
