#include "pg/lookup.hpp"

#include "pg/citus.hpp"
#include "pg/compat.hpp"
#include "pg/relation_change.hpp"
#include "pg/table_state.hpp"

namespace stacksaga::pg {

namespace {

/// The visible row's columns; values that lie in TOAST are fetched while the snapshot protects
/// them.
void copy_columns(TupleTableSlot *slot, std::span<Datum> values, std::span<bool> nulls) {
    slot_getallattrs(slot);
    for (size_t i = 0; i < values.size(); ++i) {
        const Form_pg_attribute column = TupleDescAttr(slot->tts_tupleDescriptor, i);
        nulls[i] = slot->tts_isnull[i];
        if (nulls[i])
            values[i] = Datum{0};
        else if (column->attlen == -1)
            values[i] = PointerGetDatum(PG_DETOAST_DATUM_COPY(slot->tts_values[i]));
        else
            values[i] = datumCopy(slot->tts_values[i], column->attbyval, column->attlen);
    }
}

void visit_from(IndexReader &reader, std::span<const KeyColumn> prefix, RowVisitor visitor,
                void *state) {
    reader.seek(prefix);
    TupleTableSlot *row;
    while ((row = reader.next()) != nullptr && visitor(row, state))
        ;
}

/// Where the first row goes.
struct FirstRow {
    std::span<Datum> values;
    std::span<bool> nulls;
    bool found = false;
};

bool take_first(TupleTableSlot *slot, void *state) {
    auto *row = static_cast<FirstRow *>(state);
    row->found = true;
    if (!row->values.empty())
        copy_columns(slot, row->values, row->nulls);
    return false;
}

/// The relations that were looked up last, by the literal that names them.
struct KnownRelation {
    const char *name;
    Oid id;
};
constinit std::array<KnownRelation, 64> known_relations{};

void forget_relations(Datum, Oid) {
    known_relations.fill({});
}

Oid relation_named(const char *name) {
    static constinit bool is_watching = false;
    if (!is_watching)
        watch_relations(forget_relations);
    is_watching = true;
    KnownRelation &known =
        known_relations[(reinterpret_cast<uintptr_t>(name) >> 3) % known_relations.size()];
    if (known.name == name)
        return known.id;
    const Oid schema = get_namespace_oid("stacksaga", true);
    const Oid id = OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;
    if (OidIsValid(id))
        known = {.name = name, .id = id};
    return id;
}

bool is_plain(Relation table) {
    return table->rd_rel->relkind == RELKIND_RELATION && !table->rd_rel->relhassubclass &&
           !is_managed_by_citus(RelationGetRelid(table));
}

bool find(const char *name, std::span<const KeyColumn> key, ScanDirection direction,
          std::span<Datum> values, std::span<bool> nulls) {
    Assert(values.size() == nulls.size());
    Oid relation = relation_named(name);
    if (!OidIsValid(relation))
        return false;
    Relation table = table_open(relation, AccessShareLock);
    FirstRow row{.values = values, .nulls = nulls};
    const bool has_columns =
        values.empty() || RelationGetDescr(table)->natts == static_cast<int>(values.size());
    const Oid primary_key = is_plain(table) && has_columns ? primary_key_index(table) : InvalidOid;
    if (OidIsValid(primary_key)) {
        Relation index = index_open(primary_key, AccessShareLock);
        IndexReader reader(table, index, direction);
        visit_from(reader, key, take_first, &row);
        reader.close();
        index_close(index, NoLock);
    }
    table_close(table, NoLock);
    return row.found;
}

} // namespace

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

void IndexReader::close() {
    for (IndexScanDesc scan : scans_)
        if (scan != nullptr)
            index_endscan(scan);
    ExecDropSingleTupleTableSlot(slot_);
    UnregisterSnapshot(snapshot_);
}

bool read_index(const char *table_name, const char *index_name, ScanDirection direction,
                ReaderBody body, void *state) {
    const Oid table_id = relation_named(table_name);
    const Oid index_id = relation_named(index_name);
    if (!OidIsValid(table_id) || !OidIsValid(index_id))
        return false;
    Relation table = table_open(table_id, AccessShareLock);
    const bool is_readable = is_plain(table);
    if (is_readable) {
        Relation index = index_open(index_id, AccessShareLock);
        IndexReader reader(table, index, direction);
        body(reader, state);
        reader.close();
        index_close(index, NoLock);
    }
    table_close(table, NoLock);
    return is_readable;
}

bool find_row(const char *table, std::span<const KeyColumn> key, std::span<Datum> values,
              std::span<bool> nulls) {
    return find(table, key, ForwardScanDirection, values, nulls);
}

bool find_last_row(const char *table, std::span<const KeyColumn> prefix, std::span<Datum> values,
                   std::span<bool> nulls) {
    return find(table, prefix, BackwardScanDirection, values, nulls);
}

bool has_row(const char *table, std::span<const KeyColumn> prefix) {
    return find(table, prefix, ForwardScanDirection, {}, {});
}

bool has_row(const char *table, const char *index, std::span<const KeyColumn> prefix) {
    FirstRow row{.values = {}, .nulls = {}};
    visit_rows(table, index, prefix, take_first, &row);
    return row.found;
}

bool is_being_changed(TupleTableSlot *row) {
    if (!TTS_IS_BUFFERTUPLE(row))
        return false;
    // Whether the row is visible was just looked up, and a change that was rolled back marked so.
    const HeapTupleHeader header = ExecFetchSlotHeapTuple(row, false, nullptr)->t_data;
    return (header->t_infomask & HEAP_XMAX_INVALID) == 0 &&
           !HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask);
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

bool read_index(Table &table, size_t index, ReaderBody body, void *state) {
    OpenTable open = open_table(table, AccessShareLock);
    if (open.is_direct()) {
        IndexReader reader(open.heap, open.index(index), ForwardScanDirection);
        body(reader, state);
        reader.close();
    }
    open.close();
    return open.is_direct();
}

void visit_rows(const char *table, const char *index, std::span<const KeyColumn> prefix,
                RowVisitor visitor, void *state) {
    const bool is_read = with_index(
        table, index, [&](IndexReader &reader) { visit_from(reader, prefix, visitor, state); });
    if (!is_read)
        elog(ERROR, "stacksaga.%s is no plain table with an index %s", table, index);
}

void visit_rows(Table &table, size_t index, std::span<const KeyColumn> prefix, RowVisitor visitor,
                void *state) {
    const bool is_read = with_index(
        table, index, [&](IndexReader &reader) { visit_from(reader, prefix, visitor, state); });
    if (!is_read)
        elog(ERROR, "stacksaga.%s is not accessed directly: %s", table.description().name,
             table.obstacle());
}

} // namespace stacksaga::pg
