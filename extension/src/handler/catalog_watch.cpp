#include "src/handler/catalog_watch.hpp"

#include "pg/table/relation_change.hpp"

namespace stacksaga {

namespace {

// From 1, so that 0 is a state that has never been.
constinit uint64 catalog_changes = 1;
constinit uint64 call_changes = 1;
constinit bool is_watching = false;

void note_catalog_change(Datum, int, uint32) {
    ++catalog_changes;
    ++call_changes;
}

void note_plan_change(Datum, int, uint32) {
    ++call_changes;
}

void note_relation_change(Datum, Oid) {
    ++call_changes;
}

// A change invalidates the row in every cache of its catalog, so one cache of each is enough. The
// grants of a function or a schema are in its row; a database's owner is a member of
// pg_database_owner.
constexpr std::array checked_caches{PROCOID, TYPEOID,        NAMESPACEOID,
                                    AUTHOID, AUTHMEMMEMROLE, DATABASEOID};
// The other catalogs that PostgreSQL's own plan cache looks at, besides relations.
constexpr std::array planned_caches{OPEROID, AMOPOPID, FOREIGNSERVEROID, FOREIGNDATAWRAPPEROID};

void watch() {
    if (is_watching)
        return;
    for (const int cache : checked_caches)
        CacheRegisterSyscacheCallback(cache, note_catalog_change, Datum{0});
    for (const int cache : planned_caches)
        CacheRegisterSyscacheCallback(cache, note_plan_change, Datum{0});
    pg::watch_relations(note_relation_change);
    is_watching = true;
}

} // namespace

constinit const pg::TransactionUser catalog_watch_events{
    .at_end = [] { ++call_changes; },
    .at_rollback = [](const pg::Subtransaction &) { ++call_changes; },
};

uint64 catalog_state() {
    watch();
    return catalog_changes;
}

uint64 call_state() {
    watch();
    return call_changes;
}

} // namespace stacksaga
