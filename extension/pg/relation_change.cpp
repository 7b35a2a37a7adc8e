#include "pg/relation_change.hpp"

namespace stacksaga::pg {

namespace {

constinit std::array<RelcacheCallbackFunction, 16> callbacks{};
constinit size_t count = 0;

void call_all(Datum, Oid relation) {
    for (size_t i = 0; i < count; ++i)
        callbacks[i](Datum{0}, relation);
}

} // namespace

void watch_relations(RelcacheCallbackFunction callback) {
    if (count == callbacks.size())
        elog(ERROR, "too many callbacks for changes of relations");
    if (count == 0)
        CacheRegisterRelcacheCallback(call_all, Datum{0});
    callbacks[count++] = callback;
}

} // namespace stacksaga::pg
