#include "pg/table/index_walk.hpp"

#include "pg/compat.hpp"
#include "pg/table/table_state.hpp"

namespace stacksaga::pg {

namespace {

/// As ExecIndexBuildScanKeys() makes one of a comparison of rows.
void fill_row_bound(const RowBound &bound, ScanKeyData *members, ScanKeyData &header) {
    ScanKeyEntryInitialize(&members[0], SK_ROW_MEMBER, bound.column, BTLessStrategyNumber,
                           TIMESTAMPTZOID, InvalidOid, F_TIMESTAMPTZ_CMP,
                           TimestampTzGetDatum(bound.time));
    auto *id = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t)));
    *id = bound.id;
    ScanKeyEntryInitialize(&members[1], SK_ROW_MEMBER | SK_ROW_END,
                           static_cast<AttrNumber>(bound.column + 1), BTLessStrategyNumber, UUIDOID,
                           InvalidOid, F_UUID_CMP, UUIDPGetDatum(id));
    header = {};
    header.sk_flags = SK_ROW_HEADER;
    header.sk_attno = bound.column;
    header.sk_strategy = BTLessStrategyNumber;
    header.sk_argument = PointerGetDatum(members);
}

size_t fill_keys(std::span<const KeyColumn> key, ScanKeyData *keys) {
    for (size_t i = 0; i < key.size(); ++i)
        ScanKeyEntryInitialize(
            &keys[i], 0, key[i].column != 0 ? key[i].column : static_cast<AttrNumber>(i + 1),
            key[i].strategy, InvalidOid, key[i].collation, key[i].compare, key[i].value);
    return key.size();
}

} // namespace

std::optional<OpenIndex> OpenIndex::open(Table &table, size_t index) {
    OpenTable open = open_table(table, AccessShareLock);
    std::optional<OpenIndex> opened;
    if (open.unreadable(index) == nullptr && !open.state.indexes[index].is_too_new) {
        const Oid heap = RelationGetRelid(open.heap);
        opened.emplace();
        opened->table = table_open(heap, NoLock);
        opened->index = index_open(open.state.indexes[index].id, AccessShareLock);
    }
    open.close();
    return opened;
}

void OpenIndex::close() {
    index_close(index, AccessShareLock); // see OpenTable::close()
    table_close(table, NoLock);
}

IndexWalk::IndexWalk(const OpenIndex &opened, std::span<const KeyColumn> key,
                     const std::optional<RowBound> &before, ScanDirection direction,
                     Entries entries)
    : slot_(table_slot_create(opened.table, nullptr)), direction_(direction) {
    Assert(key.size() <= key_columns_max);
    std::array<ScanKeyData, key_columns_max + 1> keys;
    size_t count = fill_keys(key, keys.data());
    if (before) { // the members are read as long as the walk goes
        auto *members = static_cast<ScanKeyData *>(palloc0(2 * sizeof(ScanKeyData)));
        fill_row_bound(*before, members, keys[count++]);
    }
    scan_ =
        begin_index_scan(opened.table, opened.index, GetActiveSnapshot(), static_cast<int>(count));
    scan_->xs_want_itup = entries == Entries::values;
    index_rescan(scan_, keys.data(), static_cast<int>(count), nullptr, 0);
}

void IndexWalk::seek(std::span<const KeyColumn> key) {
    Assert(key.size() == static_cast<size_t>(scan_->numberOfKeys));
    std::array<ScanKeyData, key_columns_max> keys;
    index_rescan(scan_, keys.data(), static_cast<int>(fill_keys(key, keys.data())), nullptr, 0);
}

void IndexWalk::close() {
    index_endscan(scan_);
    ExecDropSingleTupleTableSlot(slot_);
}

bool IndexWalk::next_entry() {
    CHECK_FOR_INTERRUPTS();
    return index_getnext_tid(scan_, direction_) != nullptr;
}

Datum IndexWalk::value(AttrNumber column) const {
    bool is_null;
    const Datum value = index_getattr(scan_->xs_itup, column, scan_->xs_itupdesc, &is_null);
    Assert(!is_null);
    return value;
}

void IndexWalk::values(std::span<Datum> columns) const {
    std::array<Datum, INDEX_MAX_KEYS> all;
    std::array<bool, INDEX_MAX_KEYS> nulls;
    index_deform_tuple(scan_->xs_itup, scan_->xs_itupdesc, all.data(), nulls.data());
    std::copy_n(all.begin(), columns.size(), columns.begin());
}

TupleTableSlot *IndexWalk::row() {
    return index_fetch_heap(scan_, slot_) ? slot_ : nullptr;
}

TupleTableSlot *IndexWalk::row_at(const ItemPointerData &place) {
    scan_->xs_heaptid = place;
    return row();
}

TupleTableSlot *IndexWalk::next_row() {
    while (next_entry())
        if (TupleTableSlot *found = row())
            return found;
    return nullptr;
}

/// The next page that is in use; InvalidBuffer: there is none.
Buffer LeafWalk::lock_next() {
    while (next_ != P_NONE) {
        CHECK_FOR_INTERRUPTS();
        const Buffer buffer = ReadBuffer(index_, next_);
        LockBuffer(buffer, BUFFER_LOCK_SHARE);
        auto *opaque = reinterpret_cast<BTPageOpaque>(PageGetSpecialPointer(BufferGetPage(buffer)));
        if (!P_IGNORE(opaque)) {
            PredicateLockPage(index_, next_, GetActiveSnapshot());
            return buffer;
        }
        next_ = opaque->btpo_next;
        UnlockReleaseBuffer(buffer);
    }
    return InvalidBuffer;
}

LeafEntry LeafWalk::entry_of(IndexTuple tuple) {
    Assert(!IndexTupleHasNulls(tuple));
    const char *data =
        reinterpret_cast<const char *>(tuple) + IndexInfoFindDataOffset(tuple->t_info);
    Assert(!VARATT_IS_COMPRESSED(data) && !VARATT_IS_EXTERNAL(data));
    const size_t behind_text = VARSIZE_ANY(data);
    const char *time = data + att_align_nominal(behind_text, TYPALIGN_DOUBLE);
    LeafEntry entry{.text = {VARDATA_ANY(data), VARSIZE_ANY_EXHDR(data)},
                    .time = 0,
                    .id = reinterpret_cast<const pg_uuid_t *>(time + sizeof(TimestampTz)),
                    .row = {}};
    memcpy(&entry.time, time, sizeof(entry.time));
    return entry;
}

} // namespace stacksaga::pg
