// The session of a worker, and that of run_pending(), runs the functions of many roles. PostgreSQL
// has a state in which all of these statements are refused, the security-restricted operation, but
// in that there are no deferred constraints either, nor temporary tables.
#include "src/handler/handler_guard.hpp"

#include "src/handler/running_handler.hpp"

namespace stacksaga {

namespace {

constinit ProcessUtility_hook_type next_hook = nullptr;

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
    case T_DeclareCursorStmt: {
        const auto *cursor = reinterpret_cast<const DeclareCursorStmt *>(statement);
        return (cursor->options & CURSOR_OPT_HOLD) != 0 ? "DECLARE CURSOR WITH HOLD" : nullptr;
    }
    default:
        return nullptr;
    }
}

void check_utility(PlannedStmt *statement, const char *text, bool is_read_only_tree,
                   ProcessUtilityContext context, ParamListInfo params,
                   QueryEnvironment *environment, DestReceiver *destination,
                   QueryCompletion *completion) {
    const char *name =
        running_handler.is_active() ? name_of_lasting(statement->utilityStmt) : nullptr;
    if (name != nullptr)
        ereport(ERROR,
                (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                 errmsg("a handler must not execute %s", name),
                 errdetail("What it does would last in a session that runs other roles' functions, "
                           "or be run as another role when the transaction commits."),
                 errhint("Remove the statement; declare a cursor without WITH HOLD.")));
    const ProcessUtility_hook_type next =
        next_hook != nullptr ? next_hook : standard_ProcessUtility;
    next(statement, text, is_read_only_tree, context, params, environment, destination, completion);
}

} // namespace

void guard_against_handlers() {
    next_hook = ProcessUtility_hook;
    ProcessUtility_hook = check_utility;
}

} // namespace stacksaga
