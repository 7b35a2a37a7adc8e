// Reading a table directly: index scans, and locks on what they find.
//
// Scans go through index_beginscan() and index_getnext_slot(), which take the predicate locks of
// SERIALIZABLE and count for pg_stat. Locking follows ExecLockRows() in nodeLockRows.c: the latest
// version of a row is locked and its key compared once more.
#include "pg/compat.hpp"
#include "pg/table/table_state.hpp"

namespace stacksaga::pg {

namespace {

/// The key of a scan, as keys of its index.
struct Search {
    const CheckedIndex &index;
    const TableIndex &described;
    std::array<ScanKeyData, index_columns_max + 2> keys;
    size_t count = 0;

    void add(size_t column, StrategyNumber strategy, Datum value) {
        const IndexColumn &by = index.columns[column];
        ScanKeyEntryInitializeWithInfo(&keys[count++], 0, static_cast<AttrNumber>(column + 1),
                                       strategy, InvalidOid, by.collation,
                                       const_cast<FmgrInfo *>(&by.compare[strategy - 1u]), value);
    }

    /// Whether a row is what the scan looks for.
    bool accepts(TupleTableSlot *slot) {
        for (size_t i = 0; i < count; ++i) {
            ScanKeyData &key = keys[i];
            bool isnull;
            const Datum value =
                slot_getattr(slot, described.key.columns[key.sk_attno - 1], &isnull);
            if (isnull || !DatumGetBool(FunctionCall2Coll(&key.sk_func, key.sk_collation, value,
                                                          key.sk_argument)))
                return false;
        }
        if (described.holds == nullptr)
            return true;
        slot_getallattrs(slot);
        const auto columns = static_cast<size_t>(slot->tts_tupleDescriptor->natts);
        return described.holds(TableRow({slot->tts_values, columns}, {slot->tts_isnull, columns}));
    }
};

void require_type(const OpenTable &table, const TableScan &scan, size_t column,
                  const Param &value) {
    const TableDescription &description = table.description();
    const uint8 number = description.indexes[scan.index].key.columns[column];
    if (value.type != description.columns[number - 1u].type)
        elog(ERROR, "index %s is searched for a value of type %u",
             description.indexes[scan.index].name, value.type);
}

/// Nothing equals null, and nothing is more or less.
bool asks_for_null(const TableScan &scan) {
    return std::any_of(scan.key.begin(), scan.key.end(), [](const Param &p) { return p.isnull; }) ||
           (scan.lower && scan.lower->value.isnull) || (scan.upper && scan.upper->value.isnull);
}

Search make_search(const OpenTable &table, const TableScan &scan) {
    Search search{.index = table.state.indexes[scan.index],
                  .described = table.description().indexes[scan.index],
                  .keys = {}};
    auto add = [&](size_t column, StrategyNumber strategy, const Param &value) {
        require_type(table, scan, column, value);
        search.add(column, strategy, value.value);
    };
    for (size_t i = 0; i < scan.key.size(); ++i)
        add(i, BTEqualStrategyNumber, scan.key[i]);
    if (scan.lower)
        add(scan.key.size(),
            scan.lower->is_inclusive ? BTGreaterEqualStrategyNumber : BTGreaterStrategyNumber,
            scan.lower->value);
    if (scan.upper)
        add(scan.key.size(),
            scan.upper->is_inclusive ? BTLessEqualStrategyNumber : BTLessStrategyNumber,
            scan.upper->value);
    return search;
}

/// Locks the latest version of the row at `place`, which goes to `slot`. False when there is none
/// any more, or it is locked and to be skipped.
bool lock_row(Relation heap, ItemPointerData place, const TableScan &scan, Snapshot snapshot,
              TupleTableSlot *slot, bool *has_moved) {
    TM_FailureData failure;
    const TM_Result result = table_tuple_lock(
        heap, &place, snapshot, slot, GetCurrentCommandId(false),
        scan.lock == RowLock::update ? LockTupleExclusive : LockTupleNoKeyExclusive,
        scan.if_locked == IfLocked::skip ? LockWaitSkip : LockWaitBlock,
        TUPLE_LOCK_FLAG_LOCK_UPDATE_IN_PROGRESS | TUPLE_LOCK_FLAG_FIND_LAST_VERSION, &failure);
    *has_moved = failure.traversed;
    switch (result) {
    case TM_Ok:
        return true;
    case TM_WouldBlock:
    case TM_SelfModified: // deleted by this command
        return false;
    case TM_Deleted:
        if (IsolationUsesXactSnapshot())
            raise_concurrent_update();
        return false;
    default:
        elog(ERROR, "unexpected result %d of table_tuple_lock()", static_cast<int>(result));
    }
}

/// All rows that are found.
struct RowList {
    TableRow *rows = nullptr;
    size_t count = 0, room = 0;

    void add(const TableRow &row) {
        if (count == room) {
            room = std::max<size_t>(room * 2, 1);
            rows =
                static_cast<TableRow *>(rows == nullptr ? palloc(sizeof(TableRow) * room)
                                                        : repalloc(rows, sizeof(TableRow) * room));
        }
        rows[count++] = row;
    }
};

/// The row in `slot`, locked if the scan wants it so; nothing if it is not to be returned.
std::optional<TableRow> take_row(OpenTable &table, Search &search, const TableScan &scan,
                                 Snapshot snapshot, TupleTableSlot *slot, TupleTableSlot *locked) {
    if (scan.lock != RowLock::none) {
        bool has_moved = false;
        if (!lock_row(table.heap, slot->tts_tid, scan, snapshot, locked, &has_moved))
            return std::nullopt;
        if (has_moved && !search.accepts(locked))
            return std::nullopt;
        if (refuses_newer_versions(table.description()) && !is_in_snapshot(table.heap, locked))
            raise_concurrent_update();
        slot = locked;
    }
    TableRow row =
        make_row(table.description(), ExecCopySlotHeapTuple(slot), RelationGetDescr(table.heap));
    row.place = slot->tts_tid;
    row.is_locked = scan.lock != RowLock::none;
    return row;
}

} // namespace

bool is_in_snapshot(Relation heap, TupleTableSlot *slot) {
    return table_tuple_satisfies_snapshot(heap, slot, GetTransactionSnapshot());
}

TableRow make_row(const TableDescription &table, HeapTuple tuple, TupleDesc columns) {
    const auto all = static_cast<size_t>(columns->natts);
    const size_t count = table.columns.size();
    auto *values = static_cast<Datum *>(palloc(sizeof(Datum) * all));
    auto *nulls = static_cast<bool *>(palloc(sizeof(bool) * all));
    heap_deform_tuple(tuple, columns, values, nulls);
    if (HeapTupleHasExternal(tuple))
        for (size_t i = 0; i < count; ++i)
            if (!nulls[i] && table.columns[i].toasted == Toasted::fetched &&
                TupleDescAttr(columns, static_cast<int>(i))->attlen == -1 &&
                VARATT_IS_EXTERNAL(DatumGetPointer(values[i])))
                values[i] = PointerGetDatum(
                    detoast_external_attr(reinterpret_cast<varlena *>(DatumGetPointer(values[i]))));
    return {{values, count}, {nulls, count}};
}

void equality_keys(const OpenTable &table, size_t i, std::span<const Datum> values,
                   std::span<ScanKeyData> keys) {
    const CheckedIndex &index = table.state.indexes[i];
    for (size_t k = 0; k < values.size(); ++k)
        ScanKeyEntryInitializeWithInfo(
            &keys[k], 0, static_cast<AttrNumber>(k + 1), BTEqualStrategyNumber, InvalidOid,
            index.columns[k].collation,
            const_cast<FmgrInfo *>(&index.columns[k].compare[BTEqualStrategyNumber - 1]),
            values[k]);
}

std::span<TableRow> find_directly(OpenTable &table, const TableScan &scan) {
    if (asks_for_null(scan))
        return {};
    Search search = make_search(table, scan);
    Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    TupleTableSlot *slot = table_slot_create(table.heap, nullptr);
    TupleTableSlot *locked =
        scan.lock == RowLock::none ? nullptr : table_slot_create(table.heap, nullptr);
    IndexScanDesc descriptor = begin_index_scan(table.heap, table.index(scan.index), snapshot,
                                                static_cast<int>(search.count));
    index_rescan(descriptor, search.keys.data(), static_cast<int>(search.count), nullptr, 0);
    RowList found;
    while ((scan.limit == 0 || found.count < scan.limit) &&
           index_getnext_slot(descriptor, ForwardScanDirection, slot)) {
        CHECK_FOR_INTERRUPTS();
        if (const std::optional<TableRow> row =
                take_row(table, search, scan, snapshot, slot, locked))
            found.add(*row);
    }
    index_endscan(descriptor);
    if (locked != nullptr)
        ExecDropSingleTupleTableSlot(locked);
    ExecDropSingleTupleTableSlot(slot);
    UnregisterSnapshot(snapshot);
    return {found.rows, found.count};
}

} // namespace stacksaga::pg
