#include "src/common/late_rows.hpp"

namespace stacksaga {

namespace {

constinit LateWriter late_writer = nullptr;

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

void register_late_writer(LateWriter writer) {
    late_writer = writer;
}

void write_late_rows() {
    if (late_writer != nullptr)
        late_writer();
}

void write_late_rows_before(const Node *statement) {
    if (late_writer != nullptr && !leaves_tables_alone(statement))
        late_writer();
}

} // namespace stacksaga
