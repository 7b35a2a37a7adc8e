// Functions of background workers, callable from SQL for the tests of the fence and of ownership.
// No script declares these functions; the tests do, as a superuser.
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "src/ring/fence.hpp"
#include "src/ring/ownership.hpp"

namespace stacksaga {

// testing_lock_slots(ring_id integer, incarnation bigint, slots integer[], epochs bigint[])
// -> boolean[]: locks slots as a worker does before it works; epochs may be null.
STACKSAGA_FUNCTION(testing_lock_slots) {
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
        lock_slots(node, {reinterpret_cast<const int32 *>(ARR_DATA_PTR(slots)), count},
                   {owned, count}, epochs);
    });
    auto *result = static_cast<Datum *>(palloc(sizeof(Datum) * count));
    for (size_t i = 0; i < count; ++i)
        result[i] = BoolGetDatum(owned[i]);
    PG_RETURN_ARRAYTYPE_P(construct_array(result, static_cast<int>(count), BOOLOID, sizeof(bool),
                                          true, TYPALIGN_CHAR));
}

// testing_take_lock(ring_id integer, slot integer) -> void: waits for the exclusive lock on a slot,
// as long as lock_timeout allows.
STACKSAGA_FUNCTION(testing_take_lock) {
    lock_slot_exclusively(PG_GETARG_INT32(0), PG_GETARG_INT32(1), true);
    PG_RETURN_VOID();
}

// testing_register_worker(ring_id integer, name text, pid integer) -> bigint
STACKSAGA_FUNCTION(testing_register_worker) {
    pg::Arguments arguments(fcinfo);
    PG_RETURN_INT64(register_worker_node(PG_GETARG_INT32(0), arguments.required_text(1, "name"),
                                         PG_GETARG_INT32(2)));
}

// testing_kill(signal integer) -> integer: sends a signal to this process, as a handler with a
// memory error may.
STACKSAGA_FUNCTION(testing_kill) {
    PG_RETURN_INT32(kill(MyProcPid, PG_GETARG_INT32(0)));
}

// testing_exit() -> void: ends the process from within, as a library may.
STACKSAGA_FUNCTION(testing_exit) {
    (void)fcinfo;
    exit(0);
}

// testing_hold_and_quit() -> void: another process asks this one to quit, and this one checks its
// interrupts only in testing_resume().
STACKSAGA_FUNCTION(testing_hold_and_quit) {
    (void)fcinfo;
    HOLD_INTERRUPTS();
    if (system(psprintf("kill -TERM %d", MyProcPid)) != 0)
        elog(ERROR, "cannot send a signal");
    PG_RETURN_VOID();
}

// testing_resume() -> void
STACKSAGA_FUNCTION(testing_resume) {
    (void)fcinfo;
    if (InterruptHoldoffCount > 0)
        RESUME_INTERRUPTS();
    CHECK_FOR_INTERRUPTS();
    PG_RETURN_VOID();
}

namespace {

constinit bool breaks_commit = false;

void break_commit(XactEvent event, void *) {
    if (std::exchange(breaks_commit, false) && event == XACT_EVENT_PRE_COMMIT)
        ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("the commit is broken")));
}

} // namespace

// testing_break_commit() -> void: this transaction fails at its commit, with a callback of its own,
// as a check of another module would.
STACKSAGA_FUNCTION(testing_break_commit) {
    static bool is_registered = false;
    (void)fcinfo;
    if (!std::exchange(is_registered, true))
        RegisterXactCallback(break_commit, nullptr);
    breaks_commit = true;
    PG_RETURN_VOID();
}

// testing_beat(ring_id integer, incarnation bigint) -> void
STACKSAGA_FUNCTION(testing_beat) {
    beat({PG_GETARG_INT32(0), PG_GETARG_INT64(1)}, 0, {.turns = 1, .items = 2, .failures = 3});
    PG_RETURN_VOID();
}

// testing_settle(ring_id integer, incarnation bigint, standalone boolean)
// -> table (taken integer, contended integer, superseded boolean, more boolean)
STACKSAGA_FUNCTION(testing_settle) {
    const OwnershipChange change =
        settle_ownership({PG_GETARG_INT32(0), PG_GETARG_INT64(1)}, PG_GETARG_BOOL(2));
    pg::ResultSet result(fcinfo);
    result.add(pg::of(Int32GetDatum(change.taken)), pg::of(Int32GetDatum(change.contended)),
               pg::of(BoolGetDatum(change.superseded)), pg::of(BoolGetDatum(change.more)));
    return pg::ResultSet::finish();
}

} // namespace stacksaga
