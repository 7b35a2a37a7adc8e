// The session of a worker, and that of run_pending(), runs the functions of many roles. PostgreSQL
// has a state in which all of these statements are refused, the security-restricted operation, but
// in that there are no deferred constraints either, nor temporary tables.
#include "src/handler/session/handler_guard.hpp"

#include "src/handler/running_handler.hpp"
#include "src/handler/session/session_guard.hpp"
#include "src/handler/session/temporary_objects.hpp"

namespace stacksaga {

namespace {

/// The part of the statement that outlives a handler: the session keeps it, or the commit runs it
/// as another role. nullptr: none.
const char *name_of_lasting(const Node *statement) {
    switch (nodeTag(statement)) {
    case T_PrepareStmt:
        return "PREPARE";
    case T_DeallocateStmt:
        return "DEALLOCATE";
    case T_ListenStmt:
        return "LISTEN";
    case T_UnlistenStmt:
        return "UNLISTEN";
    case T_DiscardStmt:
        return "DISCARD";
    case T_LoadStmt:
        return "LOAD";
    case T_DeclareCursorStmt: {
        const auto *cursor = reinterpret_cast<const DeclareCursorStmt *>(statement);
        return (cursor->options & CURSOR_OPT_HOLD) != 0 ? "DECLARE CURSOR WITH HOLD" : nullptr;
    }
    default:
        return nullptr;
    }
}

/// EXECUTE, also within EXPLAIN or CREATE TABLE AS.
bool is_execute(const Node *statement) {
    const Node *inner = statement;
    if (IsA(statement, ExplainStmt))
        inner = reinterpret_cast<const ExplainStmt *>(statement)->query;
    else if (IsA(statement, CreateTableAsStmt))
        inner = reinterpret_cast<const CreateTableAsStmt *>(statement)->query;
    if (inner != nullptr && IsA(inner, Query))
        inner = reinterpret_cast<const Query *>(inner)->utilityStmt;
    return inner != nullptr && IsA(inner, ExecuteStmt);
}

/// Whether it names a cursor that the session had before the handler, or all cursors.
bool uses_cursor_of_session(const Node *statement) {
    const char *name = nullptr;
    switch (nodeTag(statement)) {
    case T_DeclareCursorStmt:
        name = reinterpret_cast<const DeclareCursorStmt *>(statement)->portalname;
        break;
    case T_FetchStmt:
        name = reinterpret_cast<const FetchStmt *>(statement)->portalname;
        break;
    case T_ClosePortalStmt:
        name = reinterpret_cast<const ClosePortalStmt *>(statement)->portalname;
        if (name == nullptr)
            return true;
        break;
    default:
        return false;
    }
    Portal portal = GetPortalByName(name);
    return PortalIsValid(portal) && portal->createSubid < running_handler.subtransaction();
}

} // namespace

void check_utility_of_handler(const Node *statement) {
    if (!running_handler.is_active())
        return;
    note_utility_of_handler();
    if (const char *name = name_of_lasting(statement); name != nullptr)
        ereport(ERROR,
                (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                 errmsg("a handler must not execute %s", name),
                 errdetail("What it does would last in a session that runs other roles' functions, "
                           "or be run as another role when the transaction commits."),
                 errhint("Remove the statement; declare a cursor without WITH HOLD.")));
    if (is_execute(statement))
        ereport(ERROR,
                (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                 errmsg("a handler must not execute EXECUTE"),
                 errdetail("What is prepared belongs to the session, and was not prepared by it."),
                 errhint("Run the statement itself; PL/pgSQL prepares it for its next calls.")));
    if (!running_handler.is_at_top_level() && uses_cursor_of_session(statement))
        leave_to_worker("the handler uses a cursor that the session had before");
}

} // namespace stacksaga
