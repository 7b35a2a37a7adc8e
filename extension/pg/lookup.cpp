#include "pg/lookup.hpp"

#include "pg/compat.hpp"

namespace stacksaga::pg {

namespace {

constexpr size_t key_columns_max = 4;

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

bool scan(Relation table, Relation index, std::span<const KeyColumn> key, ScanDirection direction,
          std::span<Datum> values, std::span<bool> nulls) {
    std::array<ScanKeyData, key_columns_max> keys;
    for (size_t i = 0; i < key.size(); ++i)
        ScanKeyEntryInitialize(&keys[i], 0, static_cast<AttrNumber>(i + 1), BTEqualStrategyNumber,
                               InvalidOid, key[i].collation, key[i].equals, key[i].value);
    Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    TupleTableSlot *slot = table_slot_create(table, nullptr);
    IndexScanDesc scan = begin_index_scan(table, index, snapshot, static_cast<int>(key.size()));
    index_rescan(scan, keys.data(), static_cast<int>(key.size()), nullptr, 0);
    const bool found = index_getnext_slot(scan, direction, slot);
    if (found && !values.empty())
        copy_columns(slot, values, nulls);
    index_endscan(scan);
    ExecDropSingleTupleTableSlot(slot);
    UnregisterSnapshot(snapshot);
    return found;
}

bool find(const char *name, std::span<const KeyColumn> key, ScanDirection direction,
          std::span<Datum> values, std::span<bool> nulls) {
    Assert(key.size() <= key_columns_max && values.size() == nulls.size());
    Oid schema = get_namespace_oid("stacksaga", true);
    Oid relation = OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;
    if (!OidIsValid(relation))
        return false;
    Relation table = table_open(relation, AccessShareLock);
    bool found = false;
    const bool is_plain =
        table->rd_rel->relkind == RELKIND_RELATION &&
        (values.empty() || RelationGetDescr(table)->natts == static_cast<int>(values.size()));
    Oid primary_key = is_plain ? RelationGetPrimaryKeyIndex(table) : InvalidOid;
    if (OidIsValid(primary_key)) {
        Relation index = index_open(primary_key, AccessShareLock);
        found = scan(table, index, key, direction, values, nulls);
        index_close(index, NoLock);
    }
    table_close(table, NoLock);
    return found;
}

} // namespace

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

} // namespace stacksaga::pg
