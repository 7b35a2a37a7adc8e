#include "pg/scope.hpp"

#include "pg/errors.hpp"

namespace stacksaga::pg {

Oid extension_owner() {
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

} // namespace stacksaga::pg
