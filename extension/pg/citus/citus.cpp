#include "pg/citus/citus.hpp"

#include "core/common/session_cache.hpp"

#include "pg/table/relation_change.hpp"

namespace stacksaga::pg {

namespace {

constinit uint64 changes = 0; // of relations, which the session has noticed; 0: it does not watch

void note_change(Datum, Oid) {
    ++changes;
}

void watch() {
    if (changes != 0)
        return;
    watch_relations(note_change);
    changes = 1;
}

constexpr char not_managed = 0;

/// How Citus keeps the table, from its list of tables, which is there where its extension is.
char method_of(Oid relation) {
    const Oid list = get_relname_relid("pg_dist_partition", PG_CATALOG_NAMESPACE);
    if (!OidIsValid(list))
        return not_managed;
    const Oid index =
        get_relname_relid("pg_dist_partition_logical_relid_index", PG_CATALOG_NAMESPACE);
    constexpr AttrNumber relation_column = 1, method_column = 2;
    Relation table = table_open(list, AccessShareLock);
    ScanKeyData key;
    ScanKeyInit(&key, relation_column, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relation));
    SysScanDesc scan = systable_beginscan(table, index, OidIsValid(index), nullptr, 1, &key);
    const HeapTuple found = systable_getnext(scan);
    bool is_null = true;
    const Datum method = HeapTupleIsValid(found)
                             ? heap_getattr(found, method_column, RelationGetDescr(table), &is_null)
                             : Datum{0};
    systable_endscan(scan);
    table_close(table, AccessShareLock);
    return is_null ? not_managed : DatumGetChar(method);
}

char known_method_of(Oid relation) {
    static constinit core::SessionCache<char, 64> methods{};
    const uint64 state = state_of_citus();
    if (state == 0)
        return not_managed;
    // It may notice a change: then it is asked again.
    return methods.value(
        relation, [&] { return method_of(relation); }, state);
}

} // namespace

uint64 state_of_citus() {
    if (!is_citus_loaded())
        return 0;
    watch();
    return changes;
}

bool is_managed_by_citus(Oid relation) {
    return known_method_of(relation) != not_managed;
}

bool is_distributed_by_citus(Oid relation) {
    constexpr char by_hash = 'h';
    return known_method_of(relation) == by_hash;
}

bool names_table_of_citus(std::string_view sql) {
    bool has_any = false;
    if (is_citus_loaded())
        each_table(sql, [&](std::string_view, Oid relation) {
            has_any = has_any || is_managed_by_citus(relation);
        });
    return has_any;
}

Oid first_table(std::string_view sql, size_t &end) {
    constexpr std::string_view schema_name = "stacksaga.";
    const Oid schema = get_namespace_oid("stacksaga", true);
    if (!OidIsValid(schema))
        return InvalidOid;
    for (size_t at = 0; (at = sql.find(schema_name, at)) != std::string_view::npos;) {
        at += schema_name.size();
        const std::string_view rest{sql.data() + at, sql.size() - at};
        const size_t size =
            std::min(rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), rest.size());
        NameData name{};
        std::copy_n(rest.data(), std::min<size_t>(size, NAMEDATALEN - 1), NameStr(name));
        const Oid relation = get_relname_relid(NameStr(name), schema);
        if (OidIsValid(relation)) {
            end = at + size;
            return relation;
        }
    }
    return InvalidOid;
}

} // namespace stacksaga::pg
