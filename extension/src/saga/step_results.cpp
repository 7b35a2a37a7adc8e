#include "src/saga/step_results.hpp"

#include "core/saga/saga.hpp"

#include "pg/fault_point.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/scope.hpp"

namespace stacksaga {

namespace {

JsonbValue json_value(const Output &output) {
    JsonbValue value{};
    if (output.is_null) {
        value.type = jbvNull;
        return value;
    }
    Jsonb *json = DatumGetJsonbP(output.value);
    if (JB_ROOT_IS_SCALAR(json)) {
        JsonbExtractScalar(&json->root, &value);
    } else {
        value.type = jbvBinary;
        value.val.binary.data = &json->root;
        value.val.binary.len = static_cast<int>(VARSIZE(json) - VARHDRSZ);
    }
    return value;
}

JsonbValue json_key(std::string_view name) {
    JsonbValue key{};
    key.type = jbvString;
    key.val.string.val = const_cast<char *>(name.data());
    key.val.string.len = static_cast<int>(name.size());
    return key;
}

/// The outputs from `first` on as an object.
Jsonb *object_of(const Saga &saga, size_t first) {
    JsonbParseState *state = nullptr;
    pushJsonbValue(&state, WJB_BEGIN_OBJECT, nullptr);
    for (size_t i = first; i < saga.outputs.size(); ++i) {
        JsonbValue key = json_key(saga.definition->step(saga.outputs[i].step_no).name);
        JsonbValue value = json_value(saga.outputs[i]);
        pushJsonbValue(&state, WJB_KEY, &key);
        pushJsonbValue(&state, WJB_VALUE, &value);
    }
    return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, nullptr));
}

Jsonb *concatenation(Jsonb *one, Jsonb *other) {
    return DatumGetJsonbP(
        DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(one), JsonbPGetDatum(other)));
}

/// Adds the outputs that were recorded since. In memory of its own, since the garbage is many times
/// as large as the results, and a transaction may run a thousand steps of a saga.
void add_new(Saga &saga) {
    MemoryContext scratch =
        AllocSetContextCreate(CurrentMemoryContext, "stacksaga results", ALLOCSET_DEFAULT_SIZES);
    Jsonb *before = saga.results;
    pg::in_context(scratch, [&] {
        Jsonb *added = object_of(saga, saga.result_count);
        Jsonb *all = before == nullptr ? added : concatenation(before, added);
        saga.results = static_cast<Jsonb *>(saga.memory.allocate(saga.memory.owner, VARSIZE(all)));
        memcpy(saga.results, all, VARSIZE(all));
    });
    MemoryContextDelete(scratch);
    if (before != nullptr)
        pfree(before);
    saga.result_count = saga.outputs.size();
}

} // namespace

Datum step_results(Saga &saga) {
    core::require_effects(saga);
    FAULT_POINT("read: results", saga.id);
    if (saga.results == nullptr || saga.result_count < saga.outputs.size())
        add_new(saga);
    return JsonbPGetDatum(saga.results);
}

} // namespace stacksaga
