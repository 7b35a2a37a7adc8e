#include "pg/statement/scope.hpp"

#include "pg/errors.hpp"
#include "pg/table/relation_change.hpp"

namespace stacksaga::pg {

namespace {

constinit Oid known_owner = InvalidOid;

void forget_owner(Datum, Oid) {
    known_owner = InvalidOid;
}

Oid find_owner() {
    Oid schema = get_namespace_oid("stacksaga", true);
    // A table that a node of Citus always has, whatever is distributed.
    Oid table = OidIsValid(schema) ? get_relname_relid("ring", schema) : InvalidOid;
    HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
    if (!HeapTupleIsValid(tuple))
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
                        errmsg("extension \"stacksaga\" is not installed in this database"),
                        errhint("Run CREATE EXTENSION stacksaga.")));
    Oid owner = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple))->relowner;
    ReleaseSysCache(tuple);
    return owner;
}

} // namespace

Oid extension_owner() {
    static constinit bool is_watching = false;
    if (!is_watching)
        watch_relations(forget_owner);
    is_watching = true;
    if (!OidIsValid(known_owner))
        known_owner = find_owner();
    return known_owner;
}

} // namespace stacksaga::pg
