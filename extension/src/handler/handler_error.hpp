// The error that a user's function raised.
#pragma once
#include "pg/attempt.hpp"
#include "src/handler/running_handler.hpp"

namespace stacksaga {

/// What PostgreSQL says of an error besides its message. It may hold values of rows ("Key
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
};

/// From the error that is being caught. Forgets that a handler is running.
HandlerError read_handler_error();

/// SG409 while a handler is running: `function`, which it calls, would change rows that the engine
/// that called the handler has read.
void refuse_inside_handler(const char *function);

/// Runs `body`, which calls a handler, in a subtransaction, so that a failing one leaves nothing
/// behind. Returns nothing when it succeeded. Raises other errors, and a cancel, which is meant for
/// the session and not for the handler.
template <class F> std::optional<HandlerError> attempt_handler(F &&body) {
    HandlerError error{};
    const bool is_done = pg::attempt_expecting(
        [&](const ErrorData &) {
            if (!running_handler.is_active())
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
