#include "src/handler/handler_error.hpp"

#include "pg/errors.hpp"
#include "pg/settings.hpp"
#include "src/common/limits.hpp"
#include "src/handler/handler_timeout.hpp"

namespace stacksaga {

namespace {

/// Whether the server itself cancels the statement. (A handler may raise the same SQLSTATE.)
bool is_cancel(const ErrorData &error) {
    return error.sqlerrcode == ERRCODE_QUERY_CANCELED && error.funcname != nullptr &&
           strcmp(error.funcname, "ProcessInterrupts") == 0;
}

std::string_view clipped(const char *text) {
    const int length = static_cast<int>(strlen(text));
    return pnstrdup(text, static_cast<Size>(pg_mbcliplen(text, length, error_bytes_max)));
}

/// Whether an error that came while an item was read may not come again: it says something of the
/// server, of its connections or of other transactions.
bool may_pass(int sqlstate) {
    const int category = ERRCODE_TO_CATEGORY(sqlstate);
    return category == ERRCODE_TO_CATEGORY(ERRCODE_INSUFFICIENT_RESOURCES) ||
           category == ERRCODE_TO_CATEGORY(ERRCODE_OPERATOR_INTERVENTION) ||
           category == ERRCODE_TO_CATEGORY(ERRCODE_TRANSACTION_ROLLBACK) ||
           category == ERRCODE_TO_CATEGORY(ERRCODE_CONNECTION_EXCEPTION);
}

void fill_texts(HandlerError &result, const ErrorData &error) {
    result.sqlstate = pstrdup(unpack_sql_state(error.sqlerrcode));
    result.message = clipped(error.message != nullptr ? error.message : "");
    if (pg::settings.error_detail && error.detail != nullptr)
        result.detail.detail = clipped(error.detail);
    if (pg::settings.error_detail && error.context != nullptr)
        result.detail.context = clipped(error.context);
}

} // namespace

void refuse_inside_handler(const char *function) {
    if (!running_handler.is_active())
        return;
    ereport(ERROR,
            (errcode(pg::sg409), errmsg("%s cannot run inside a handler", function),
             errdetail("A function that this session runs for a step or a message is calling it."),
             errhint("Call it in a session's own transaction.")));
}

bool is_of_session(const ErrorData &error) {
    return is_cancel(error) ||
           (IsolationUsesXactSnapshot() && ERRCODE_TO_CATEGORY(error.sqlerrcode) ==
                                               ERRCODE_TO_CATEGORY(ERRCODE_TRANSACTION_ROLLBACK));
}

HandlerError unfit_error(const ErrorData &error) {
    HandlerError result{};
    fill_texts(result, error);
    result.is_unfit = true;
    result.may_pass = may_pass(error.sqlerrcode);
    return result;
}

HandlerError read_handler_error() {
    ErrorData *error = CopyErrorData();
    HandlerError result{};
    fill_texts(result, *error);
    result.timed_out = handler_has_timed_out();
    result.is_cancelled = is_cancel(*error) && !result.timed_out;
    result.is_unfit = running_handler.is_reading() && !running_handler.is_active();
    result.may_pass = result.is_unfit && may_pass(error->sqlerrcode);
    result.is_unusable = running_handler.is_unusable();
    result.is_for_worker = running_handler.is_for_worker();
    if (result.timed_out) {
        result.message = "the attempt took longer than the step's timeout";
        result.detail.detail = std::nullopt;
    }
    running_handler.end();
    running_handler.end_reading();
    stop_handler_timeout();
    return result;
}

} // namespace stacksaga
