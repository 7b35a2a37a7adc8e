// Writing a table directly: inserts, updates and deletes of the heap, and the entries of its
// indexes.
//
// heap_insert(), heap_update() and the btree code themselves write WAL, keep toasted values that do
// not change, count for pg_stat and look for conflicts of SERIALIZABLE. What is done around them
// here is what the executor does: ExecInsertIndexTuples() in execIndexing.c, ExecInsert(),
// ExecUpdate() and ExecDelete() in nodeModifyTable.c.
#include "pg/compat.hpp"
#include "pg/table/table_state.hpp"

namespace stacksaga::pg {

namespace {

// Rows of one multi-insert.
constexpr size_t rows_at_once = 64;

void fill_slot(const OpenTable &table, TupleTableSlot *slot, const RowImage &image) {
    const size_t described = table.description().columns.size();
    ExecClearTuple(slot);
    const auto columns = static_cast<size_t>(slot->tts_tupleDescriptor->natts);
    std::copy_n(image.values.begin(), described, slot->tts_values);
    std::copy_n(image.nulls.begin(), described, slot->tts_isnull);
    std::fill(slot->tts_isnull + described, slot->tts_isnull + columns, true); // were dropped
    ExecStoreVirtualTuple(slot);
}

struct IndexEntry {
    std::array<Datum, index_columns_max> values;
    std::array<bool, index_columns_max> nulls;

    IndexEntry(const IndexKey &key, const RowImage &image) : values{}, nulls{} {
        for (size_t i = 0; i < key.size; ++i) {
            values[i] = image.values[key.columns[i] - 1u];
            nulls[i] = image.nulls[key.columns[i] - 1u];
        }
    }
};

enum class Duplicates : uint8 {
    refused,  ///< 23505
    reported, ///< of the primary key, without waiting for who may be inserting it
};

/// Adds the entry of index `i` for a new row; false for a duplicate that is to be reported.
/// `unchanged`: the row is a version of an older one with the same key, which tells the btree that
/// the older entry may go. Nobody else can have inserted such a key: he would have met the older
/// version, and waits until it is known whether that is gone.
bool insert_entry(OpenTable &table, size_t i, const RowImage &image, ItemPointer place,
                  Duplicates duplicates, bool unchanged) {
    const TableIndex &described = table.description().indexes[i];
    Relation index = table.index(i);
    IndexEntry entry(described.key, image);
    IndexUniqueCheck check = UNIQUE_CHECK_NO;
    if (described.is_unique && !unchanged)
        check =
            i == 0 && duplicates == Duplicates::reported ? UNIQUE_CHECK_PARTIAL : UNIQUE_CHECK_YES;
    // The btree wants none of what it holds: the entry and the predicate are made here.
    IndexInfo *info = BuildDummyIndexInfo(index);
    const bool is_unique = index_insert(index, entry.values.data(), entry.nulls.data(), place,
                                        table.heap, check, unchanged, info);
    return is_unique || check != UNIQUE_CHECK_PARTIAL;
}

/// Adds the entries of a new row to all indexes whose predicate it fulfils.
bool insert_entries(OpenTable &table, RowImage &image, ItemPointer place,
                    Duplicates duplicates = Duplicates::refused) {
    const TableDescription &description = table.description();
    bool is_unique = true;
    for (size_t i = 0; i < description.indexes.size() && is_unique; ++i) {
        const TableIndex &index = description.indexes[i];
        if (index.holds == nullptr || index.holds(image.row(description)))
            is_unique = insert_entry(table, i, image, place, duplicates, false);
    }
    return is_unique;
}

bool is_changed(const IndexKey &key, std::span<const Assignment> changes) {
    return std::any_of(changes.begin(), changes.end(), [&](const Assignment &change) {
        return std::find(key.columns.begin(), key.columns.begin() + key.size, change.column) !=
               key.columns.begin() + key.size;
    });
}

/// The same for a new version that is not heap-only: each index gets an entry for it.
void insert_entries_of_version(OpenTable &table, RowImage &image, ItemPointer place,
                               std::span<const Assignment> changes) {
    const TableDescription &description = table.description();
    for (size_t i = 0; i < description.indexes.size(); ++i) {
        const TableIndex &index = description.indexes[i];
        if (index.holds == nullptr || index.holds(image.row(description)))
            insert_entry(table, i, image, place, Duplicates::refused,
                         !is_changed(index.key, changes));
    }
}

/// Whether there is a row with the primary key of `image`. Waits for a transaction that is
/// inserting or deleting one (as check_exclusion_or_unique_constraint() in execIndexing.c).
bool has_same_key(OpenTable &table, const RowImage &image, TupleTableSlot *slot) {
    const IndexKey &key = table.description().indexes[0].key;
    const IndexEntry entry(key, image);
    std::array<ScanKeyData, index_columns_max> keys;
    equality_keys(table, 0, std::span(entry.values).first(key.size), keys);
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        SnapshotData dirty;
        InitDirtySnapshot(dirty);
        IndexScanDesc scan =
            begin_index_scan(table.heap, table.index(0), &dirty, static_cast<int>(key.size));
        index_rescan(scan, keys.data(), static_cast<int>(key.size), nullptr, 0);
        const bool found = index_getnext_slot(scan, ForwardScanDirection, slot);
        ItemPointerData place = slot->tts_tid;
        index_endscan(scan);
        const TransactionId writer = TransactionIdIsValid(dirty.xmin) ? dirty.xmin : dirty.xmax;
        if (!found || !TransactionIdIsValid(writer))
            return found;
        ExecClearTuple(slot);
        if (dirty.speculativeToken != 0)
            SpeculativeInsertionWait(dirty.xmin, dirty.speculativeToken);
        else
            XactLockTableWait(writer, table.heap, &place, XLTW_InsertIndex);
    }
}

/// Inserts the row in a way that it can be taken back if somebody else was faster; whether it
/// stays.
bool insert_speculatively(OpenTable &table, RowImage &image, TupleTableSlot *slot) {
    fill_slot(table, slot, image);
    const uint32 token = SpeculativeInsertionLockAcquire(GetCurrentTransactionId());
    table_tuple_insert_speculative(table.heap, slot, GetCurrentCommandId(true), 0, nullptr, token);
    const bool is_unique = insert_entries(table, image, &slot->tts_tid, Duplicates::reported);
    table_tuple_complete_speculative(table.heap, slot, token, is_unique);
    SpeculativeInsertionLockRelease(GetCurrentTransactionId());
    return is_unique;
}

/// The row that has these values and nulls otherwise.
RowImage new_row(const OpenTable &table, std::span<const Assignment> assignments) {
    RowImage image;
    image.nulls.fill(true);
    image.assign(table.description(), assignments);
    image.require_complete(table.description(), table.heap);
    return image;
}

void insert_some(OpenTable &table, std::span<const std::span<const Assignment>> rows,
                 RowImage *images, TupleTableSlot **slots) {
    for (size_t i = 0; i < rows.size(); ++i) {
        images[i] = new_row(table, rows[i]);
        fill_slot(table, slots[i], images[i]);
    }
    const CommandId command = GetCurrentCommandId(true);
    if (rows.size() == 1)
        table_tuple_insert(table.heap, slots[0], command, 0, nullptr);
    else
        table_multi_insert(table.heap, slots, static_cast<int>(rows.size()), command, 0, nullptr);
    for (size_t i = 0; i < rows.size(); ++i)
        insert_entries(table, images[i], &slots[i]->tts_tid);
}

/// A row was changed after it was read, so it stays as it is.
bool refuse_changed(const OpenTable &table, const TableRow &row) {
    if (row.is_locked)
        elog(ERROR, "a row of %s was changed after it was locked", table.description().name);
    if (refuses_newer_versions(table.description()))
        raise_concurrent_update();
    return false;
}

/// The version that `row` was read from, which a lock, or the snapshot that was active at the
/// reading, keeps from being removed. Null if there is a newer one.
TupleTableSlot *fetch_version(OpenTable &table, const TableRow &row) {
    TupleTableSlot *slot = table_slot_create(table.heap, nullptr);
    ItemPointerData place = row.place;
    if (!table_tuple_fetch_row_version(table.heap, &place, SnapshotAny, slot))
        elog(ERROR, "a row of %s that was read is gone", table.description().name);
    // Also if this transaction itself has changed it: heap_update() expects no such row.
    if (!table_tuple_satisfies_snapshot(table.heap, slot, SnapshotSelf)) {
        ExecDropSingleTupleTableSlot(slot);
        return nullptr;
    }
    // A locked one was looked at when it was locked.
    if (!row.is_locked && refuses_newer_versions(table.description()) &&
        !is_in_snapshot(table.heap, slot))
        raise_concurrent_update();
    return slot;
}

/// Whether an update or a delete has been done.
bool is_done(const OpenTable &table, const TableRow &row, TM_Result result) {
    switch (result) {
    case TM_Ok:
        return true;
    case TM_Updated:
    case TM_Deleted:
        return refuse_changed(table, row);
    default:
        elog(ERROR, "unexpected result %d of a write", static_cast<int>(result));
    }
}

} // namespace

void insert_directly(OpenTable &table, std::span<const std::span<const Assignment>> rows) {
    const size_t at_once = std::min(rows.size(), rows_at_once);
    auto *images = static_cast<RowImage *>(palloc(sizeof(RowImage) * at_once));
    std::array<TupleTableSlot *, rows_at_once> slots;
    for (size_t i = 0; i < at_once; ++i)
        slots[i] = table_slot_create(table.heap, nullptr);
    for (size_t done = 0; done < rows.size(); done += rows_at_once) {
        CHECK_FOR_INTERRUPTS();
        insert_some(table, rows.subspan(done, std::min(rows.size() - done, rows_at_once)), images,
                    slots.data());
    }
    for (size_t i = 0; i < at_once; ++i)
        ExecDropSingleTupleTableSlot(slots[i]);
    pfree(images);
}

namespace {

/// Whether parts of the row will be stored in TOAST.
bool is_large(TupleTableSlot *slot) {
    bool is_ours;
    HeapTuple tuple = ExecFetchSlotHeapTuple(slot, true, &is_ours);
    const bool result = tuple->t_len > TOAST_TUPLE_THRESHOLD;
    if (is_ours)
        heap_freetuple(tuple);
    return result;
}

/// As VACUUM freezes a row: it belongs to no transaction from now on.
void freeze(Relation heap, ItemPointer place) {
    const Buffer buffer = ReadBuffer(heap, ItemPointerGetBlockNumber(place));
    LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
    GenericXLogState *log = GenericXLogStart(heap);
    Page page = GenericXLogRegisterBuffer(log, buffer, 0);
    ItemId item = PageGetItemId(page, ItemPointerGetOffsetNumber(place));
    HeapTupleHeaderSetXminFrozen(reinterpret_cast<HeapTupleHeader>(PageGetItem(page, item)));
    GenericXLogFinish(log);
    UnlockReleaseBuffer(buffer);
}

} // namespace

/// The row is frozen when its indexes have it: an error or a crash before leaves a row that belongs
/// to a transaction which was rolled back. Frozen at once, as COPY ... FREEZE does it, it would
/// stay without an entry, and another row with its key could be written: no search would find the
/// first one, but a read of the whole table would, and the unique index could not be built again.
/// A large row's values in TOAST would not be frozen with it, so such a row is frozen at once.
void insert_visible_directly(OpenTable &table, std::span<const Assignment> row) {
    RowImage image = new_row(table, row);
    TupleTableSlot *slot = table_slot_create(table.heap, nullptr);
    fill_slot(table, slot, image);
    const bool at_once = is_large(slot);
    table_tuple_insert(table.heap, slot, GetCurrentCommandId(true),
                       at_once ? TABLE_INSERT_FROZEN : 0, nullptr);
    insert_entries(table, image, &slot->tts_tid);
    if (!at_once)
        freeze(table.heap, &slot->tts_tid);
    ExecDropSingleTupleTableSlot(slot);
}

bool insert_if_absent_directly(OpenTable &table, std::span<const Assignment> row, KnownRow known) {
    RowImage image = new_row(table, row);
    TupleTableSlot *slot = table_slot_create(table.heap, nullptr);
    bool is_inserted = known == KnownRow::no && insert_speculatively(table, image, slot);
    while (!is_inserted && !has_same_key(table, image, slot))
        is_inserted = insert_speculatively(table, image, slot);
    // As ExecCheckTIDVisible() in nodeModifyTable.c.
    if (!is_inserted && refuses_newer_versions(table.description()) &&
        !is_in_snapshot(table.heap, slot))
        raise_concurrent_update();
    ExecDropSingleTupleTableSlot(slot);
    return is_inserted;
}

bool update_directly(OpenTable &table, TableRow &row, std::span<const Assignment> changes) {
    CheckCmdReplicaIdentity(table.heap, CMD_UPDATE);
    TupleTableSlot *old_version = fetch_version(table, row);
    if (old_version == nullptr)
        return refuse_changed(table, row);
    slot_getallattrs(old_version);
    const size_t columns = table.description().columns.size();
    RowImage image;
    // As they are stored: what lies in TOAST stays there.
    std::copy_n(old_version->tts_values, columns, image.values.begin());
    std::copy_n(old_version->tts_isnull, columns, image.nulls.begin());
    image.assign(table.description(), changes);
    image.require_complete(table.description(), table.heap);
    for (const TableTrigger &trigger : table.description().triggers)
        if (trigger.before_update != nullptr)
            trigger.before_update(row, image.row(table.description()));
    TupleTableSlot *new_version = table_slot_create(table.heap, nullptr);
    fill_slot(table, new_version, image);
    TM_FailureData failure;
    bool all_indexes = false;
    ItemPointerData place = row.place;
    const bool done =
        is_done(table, row, update_tuple(table.heap, &place, new_version, &failure, &all_indexes));
    if (done && all_indexes)
        insert_entries_of_version(table, image, &new_version->tts_tid, changes);
    if (done) {
        row.place = new_version->tts_tid;
        for (const Assignment &change : changes) {
            row.values[change.column - 1u] = change.value.value;
            row.nulls[change.column - 1u] = change.value.isnull;
        }
    }
    ExecDropSingleTupleTableSlot(new_version);
    ExecDropSingleTupleTableSlot(old_version);
    return done;
}

bool remove_directly(OpenTable &table, const TableRow &row) {
    CheckCmdReplicaIdentity(table.heap, CMD_DELETE);
    TupleTableSlot *version = fetch_version(table, row);
    if (version == nullptr)
        return refuse_changed(table, row);
    ExecDropSingleTupleTableSlot(version);
    TM_FailureData failure;
    ItemPointerData place = row.place;
    return is_done(table, row,
                   table_tuple_delete(table.heap, &place, GetCurrentCommandId(true),
                                      InvalidSnapshot, InvalidSnapshot, true, &failure, false));
}

} // namespace stacksaga::pg
