#include "src/common/deferred_rows.hpp"

namespace stacksaga {

namespace {

constinit DeferredWriter deferred_writer = nullptr;

/// Statements that neither read nor change a table by themselves. What they execute comes by here
/// as a statement of its own, or is a query.
bool leaves_tables_alone(const Node *statement) {
    switch (nodeTag(statement)) {
    case T_TransactionStmt:
    case T_VariableSetStmt:
    case T_VariableShowStmt:
    case T_ConstraintsSetStmt:
    case T_PrepareStmt:
    case T_ExecuteStmt:
    case T_ExplainStmt:
    case T_DeallocateStmt:
    case T_DeclareCursorStmt:
    case T_FetchStmt:
    case T_ClosePortalStmt:
    case T_CallStmt:
    case T_DoStmt:
    case T_NotifyStmt:
    case T_ListenStmt:
    case T_UnlistenStmt:
        return true;
    default:
        return false;
    }
}

} // namespace

void set_deferred_writer(DeferredWriter writer) {
    deferred_writer = writer;
}

void write_deferred_rows() {
    if (deferred_writer != nullptr)
        deferred_writer();
}

void write_deferred_rows_before(const Node *statement) {
    if (deferred_writer != nullptr && !leaves_tables_alone(statement))
        deferred_writer();
}

} // namespace stacksaga
