// The error that a user's function raised.
#pragma once
#include "pg/statement/attempt.hpp"
#include "src/handler/running_handler.hpp"

namespace stacksaga {

/// The fields of an error besides its message. It may hold values of rows ("Key
/// (email)=(...) already exists"), so it is kept apart from the message and shown to operators
/// alone.
struct ErrorDetail {
    std::optional<std::string_view> detail{};
    std::optional<std::string_view> context{};
};

/// Palloc'ed where read_handler_error() was called.
struct HandlerError {
    std::string_view sqlstate;
    std::string_view message;
    bool timed_out;            ///< its timeout cancelled it
    bool is_unusable;          ///< there is no such function, or it may not be run
    bool is_for_worker;        ///< it may not be run in this session; nothing is charged
    bool is_cancelled = false; ///< the server cancelled it, for a client or a statement_timeout
    bool is_crash = false;     ///< it ended its process
    bool has_crashed_too_often = false; ///< it is not tried again
    ErrorDetail detail{};               ///< empty where it is not to be stored
    bool is_unfit = false;              ///< the item could not be read or built: nothing was called
    bool may_pass = false;              ///< such an error may not come again
};

/// From the error that is being caught. Forgets that a handler is running, or an item is read.
HandlerError read_handler_error();

/// An error of an item that could not be read or built. Forgets nothing: a handler may be running
/// that has called what reads items.
HandlerError unfit_error(const ErrorData &error);

/// Whether the error that is being caught is meant for the session, whatever it was doing: a cancel
/// of its statement, or a conflict that ends its snapshot.
bool is_of_session(const ErrorData &error);

/// SG409 while a handler is running: `function`, which it calls, would change rows that the engine
/// that called the handler has read.
void refuse_inside_handler(const char *function);

/// Runs `body`, which reads an item and may call a handler, in a subtransaction, so that a failing
/// one leaves nothing behind. Returns nothing when it succeeded. Raises other errors, and those
/// that are meant for the session.
template <class F> std::optional<HandlerError> attempt_handler(F &&body) {
    HandlerError error{};
    running_handler.end_reading();
    const bool is_done = pg::attempt_expecting(
        [&](const ErrorData &caught) {
            if (!running_handler.is_active() &&
                (!running_handler.is_reading() || is_of_session(caught)))
                return false;
            error = read_handler_error();
            return !error.is_cancelled;
        },
        static_cast<F &&>(body));
    if (is_done)
        return std::nullopt;
    return error;
}

} // namespace stacksaga
