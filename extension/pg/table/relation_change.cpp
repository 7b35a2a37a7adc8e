#include "pg/table/relation_change.hpp"

namespace stacksaga::pg {

namespace {

constinit std::array<RelcacheCallbackFunction, 16> callbacks{};
constinit size_t count = 0;

void call_all(Datum, Oid relation) {
    for (size_t i = 0; i < count; ++i)
        callbacks[i](Datum{0}, relation);
}

constinit uint64 changes = 1;

void count_change(Datum, Oid) {
    ++changes;
}

} // namespace

void watch_relations(RelcacheCallbackFunction callback) {
    if (count == callbacks.size())
        elog(ERROR, "too many callbacks for changes of relations");
    if (count == 0)
        CacheRegisterRelcacheCallback(call_all, Datum{0});
    callbacks[count++] = callback;
}

uint64 relations_state() {
    static constinit bool is_watching = false;
    if (!is_watching)
        watch_relations(count_change);
    is_watching = true;
    AcceptInvalidationMessages();
    return changes;
}

void announce_change(const char *table) {
    CacheInvalidateRelcacheByRelid(get_relname_relid(table, get_namespace_oid("stacksaga", false)));
}

} // namespace stacksaga::pg
