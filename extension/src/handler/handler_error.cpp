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

} // namespace

void refuse_inside_handler(const char *function) {
    if (!running_handler.is_active())
        return;
    ereport(ERROR,
            (errcode(pg::sg409), errmsg("%s cannot run inside a handler", function),
             errdetail("A function that this session runs for a step or a message is calling it."),
             errhint("Call it in a session's own transaction.")));
}

HandlerError read_handler_error() {
    ErrorData *error = CopyErrorData();
    HandlerError result{};
    result.sqlstate = pstrdup(unpack_sql_state(error->sqlerrcode));
    result.message = clipped(error->message != nullptr ? error->message : "");
    result.timed_out = handler_has_timed_out();
    result.is_cancelled = is_cancel(*error) && !result.timed_out;
    result.is_unusable = running_handler.is_unusable();
    result.is_for_worker = running_handler.is_for_worker();
    if (pg::settings.error_detail && error->detail != nullptr)
        result.detail.detail = clipped(error->detail);
    if (pg::settings.error_detail && error->context != nullptr)
        result.detail.context = clipped(error->context);
    if (result.timed_out) {
        result.message = "the attempt took longer than the step's timeout";
        result.detail.detail = std::nullopt;
    }
    running_handler.end();
    stop_handler_timeout();
    return result;
}

} // namespace stacksaga
