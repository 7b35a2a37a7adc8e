#include "src/handler/session/session_guard.hpp"

#include "pg/random.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "src/handler/running_handler.hpp"
#include "src/handler/session/foreign_sessions.hpp"
#include "src/handler/session/temporary_objects.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement list_cursors{"SELECT name FROM pg_catalog.pg_cursors"};

/// Opened since this subtransaction began, and not closed.
bool has_open_cursor() {
    return pg::with_spi([] {
        pg::Rows rows = list_cursors.run();
        for (uint64 i = 0; i < rows.count(); ++i) {
            const std::string_view name = rows.text(i);
            Portal portal = GetPortalByName(pnstrdup(name.data(), name.size()));
            if (PortalIsValid(portal) && portal->createSubid == GetCurrentSubTransactionId())
                return true;
        }
        return false;
    });
}

// Their names differ before 15.
constexpr Oid backup_start = 2172;
constexpr Oid backup_stop = 2739;

/// The process's state, or the server's, which outlives the transaction.
bool is_of_replication(Oid function) {
    switch (function) {
    case F_PG_REPLICATION_ORIGIN_SESSION_SETUP:
    case F_PG_REPLICATION_ORIGIN_SESSION_RESET:
    case F_PG_REPLICATION_ORIGIN_XACT_SETUP:
    case F_PG_REPLICATION_ORIGIN_XACT_RESET:
    case F_PG_CREATE_PHYSICAL_REPLICATION_SLOT:
    case F_PG_CREATE_LOGICAL_REPLICATION_SLOT:
    case backup_start:
    case backup_stop:
        return true;
    default:
        return false;
    }
}

} // namespace

void check_function(Oid function) {
    if (function >= FirstNormalObjectId) {
        note_function_of_others(function);
        return;
    }
    if (!running_handler.is_active())
        return;
    if (!running_handler.is_at_top_level() && function >= F_PG_ADVISORY_LOCK_INT8 &&
        function <= F_PG_ADVISORY_UNLOCK_ALL)
        leave_to_worker("the handler takes, or gives back, a lock of the session");
    if (is_of_replication(function))
        ereport(
            ERROR,
            (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
             errmsg("a handler must not call %s()", get_func_name(function)),
             errdetail("What it does would last in a session that runs other roles' functions."),
             errhint("Call it in a session of its own.")));
}

namespace {

/// So that random() is not what setseed() of another role makes it.
void renew_random() {
    (void)DirectFunctionCall1(setseed, Float8GetDatum(2 * pg::random_fraction() - 1));
}

// From the call of a handler on, until what it has left is taken away.
constinit bool is_entered = false;

/// Where no other handler follows: the error may end the call of run_pending().
void clear_after_error() {
    if (!is_entered)
        return;
    renew_random();
    close_idle_foreign_sessions();
}

} // namespace

constinit const pg::TransactionUser session_guard_events{
    .at_abort = clear_after_error,
    .at_end = [] { is_entered = false; },
    .at_rollback = [](const pg::Subtransaction &) { clear_after_error(); },
};

void leave_to_worker(const char *why) {
    running_handler.note_for_worker(why);
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("%s", why),
                    errhint("Let a worker run it: worker_ensure() starts one.")));
}

void enter_session(Oid definer) {
    if (!running_handler.is_at_top_level() && !may_find_temporary_objects(definer))
        leave_to_worker("the session has temporary objects of another role, which the handler "
                        "could take for its own");
    hide_dblink_connections();
    renew_random();
    close_foreign_sessions();
    is_entered = true;
    begin_temporary_objects();
}

void leave_session() {
    const bool is_at_top_level = running_handler.is_at_top_level();
    if (running_handler.is_for_worker()) // it has caught the error
        leave_to_worker(running_handler.why_for_worker());
    if (!is_at_top_level && has_open_cursor())
        leave_to_worker("the handler leaves an open cursor in the session");
    close_foreign_sessions();
    renew_random();
    AtEOSubXact_LargeObject(false, GetCurrentSubTransactionId(), InvalidSubTransactionId);
    if (!drop_temporary_objects())
        leave_to_worker("the handler changes temporary objects that the session had before");
    is_entered = false;
}

void clear_session() {
    close_foreign_sessions();
    renew_random();
}

} // namespace stacksaga
