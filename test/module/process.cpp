// What a function of a user or of another module may do to the process that runs it.
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"

namespace stacksaga {

// kill(signal integer) -> integer: sends a signal to this process, as a handler with a
// memory error may.
STACKSAGA_FUNCTION(kill) {
    PG_RETURN_INT32(kill(MyProcPid, PG_GETARG_INT32(0)));
}

// exit() -> void: ends the process from within, as a library may.
STACKSAGA_FUNCTION(exit) {
    (void)fcinfo;
    exit(0);
}

// hold_and_quit() -> void: another process asks this one to quit, and this one checks its
// interrupts only in resume().
STACKSAGA_FUNCTION(hold_and_quit) {
    (void)fcinfo;
    HOLD_INTERRUPTS();
    if (system(psprintf("kill -TERM %d", MyProcPid)) != 0)
        elog(ERROR, "cannot send a signal");
    PG_RETURN_VOID();
}

// resume() -> void
STACKSAGA_FUNCTION(resume) {
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

// break_commit() -> void: this transaction fails at its commit, with a callback of its own,
// as a check of another module would.
STACKSAGA_FUNCTION(break_commit) {
    static bool is_registered = false;
    (void)fcinfo;
    if (!std::exchange(is_registered, true))
        RegisterXactCallback(break_commit, nullptr);
    breaks_commit = true;
    PG_RETURN_VOID();
}

} // namespace stacksaga
