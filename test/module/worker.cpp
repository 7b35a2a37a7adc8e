// What background workers call, as SQL functions for the tests of the fence and of ownership.
#include "pg/statement/function.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "src/worker/worker_calls.hpp"

namespace stacksaga {

namespace {

/// The library's own functions: this module has copies of those of pg/ alone.
const WorkerCalls &library() {
    static constinit const WorkerCalls *calls = nullptr;
    if (calls == nullptr)
        calls = static_cast<const WorkerCalls *>(
            load_external_function("stacksaga", "stacksaga_worker_calls", true, nullptr));
    calls->watch_transactions();
    return *calls;
}

} // namespace

// lock_slots(ring_id integer, incarnation bigint, slots integer[], epochs bigint[])
// -> boolean[]: locks slots as a worker does before it works; epochs may be null.
STACKSAGA_FUNCTION(lock_slots) {
    pg::Arguments arguments(fcinfo);
    const NodeIdentity node{arguments.required_int4(0, "ring_id"),
                            arguments.required_int8(1, "incarnation")};
    ArrayType *slots = PG_GETARG_ARRAYTYPE_P(2);
    const auto count = static_cast<size_t>(ArrayGetNItems(ARR_NDIM(slots), ARR_DIMS(slots)));
    std::span<const int64> epochs{};
    if (!arguments.is_null(3))
        epochs = {reinterpret_cast<const int64 *>(ARR_DATA_PTR(PG_GETARG_ARRAYTYPE_P(3))), count};
    auto *owned = static_cast<bool *>(palloc(sizeof(bool) * count));
    pg::with_spi([&] {
        library().lock_slots(node, {reinterpret_cast<const int32 *>(ARR_DATA_PTR(slots)), count},
                             {owned, count}, epochs);
    });
    auto *result = static_cast<Datum *>(palloc(sizeof(Datum) * count));
    for (size_t i = 0; i < count; ++i)
        result[i] = BoolGetDatum(owned[i]);
    PG_RETURN_ARRAYTYPE_P(construct_array(result, static_cast<int>(count), BOOLOID, sizeof(bool),
                                          true, TYPALIGN_CHAR));
}

// take_lock(ring_id integer, slot integer) -> void: waits for the exclusive lock on a slot,
// as long as lock_timeout allows.
STACKSAGA_FUNCTION(take_lock) {
    library().lock_slot_exclusively(PG_GETARG_INT32(0), PG_GETARG_INT32(1), true);
    PG_RETURN_VOID();
}

// register_worker(ring_id integer, name text, pid integer) -> bigint
STACKSAGA_FUNCTION(register_worker) {
    pg::Arguments arguments(fcinfo);
    PG_RETURN_INT64(library().register_worker_node(
        PG_GETARG_INT32(0), arguments.required_text(1, "name"), PG_GETARG_INT32(2)));
}

// beat(ring_id integer, incarnation bigint) -> void
STACKSAGA_FUNCTION(beat) {
    library().beat({PG_GETARG_INT32(0), PG_GETARG_INT64(1)}, 0,
                   {.turns = 1, .items = 2, .failures = 3});
    PG_RETURN_VOID();
}

// settle(ring_id integer, incarnation bigint, standalone boolean)
// -> table (taken integer, contended integer, superseded boolean, more boolean)
STACKSAGA_FUNCTION(settle) {
    const OwnershipChange change =
        library().settle_ownership({PG_GETARG_INT32(0), PG_GETARG_INT64(1)}, PG_GETARG_BOOL(2));
    pg::ResultSet result(fcinfo);
    result.add(pg::of(Int32GetDatum(change.taken)), pg::of(Int32GetDatum(change.contended)),
               pg::of(BoolGetDatum(change.superseded)), pg::of(BoolGetDatum(change.more)));
    return pg::ResultSet::finish();
}

} // namespace stacksaga
