// One due item of work, as workers and run_pending() do it.
#pragma once
#include "pg/attempt.hpp"
#include "src/saga/saga.hpp"

namespace stacksaga {

/// Where a due work row was seen; a hint until its saga is locked.
struct DueItem {
    pg_uuid_t saga_id;
    int32 slot;
    int16 step_no;
    core::Direction direction;
    int32 attempt = 0; ///< attempts so far
};

/// What a handler's error means for its step; palloc'ed where read_casualty was called.
struct Casualty {
    std::string_view sqlstate;
    std::string_view error;
    bool timed_out;            ///< its timeout cancelled it
    bool unusable;             ///< there is no such function, or it may not be run
    bool is_cancelled = false; ///< the server cancelled it, for a client or a statement_timeout
    bool is_death = false;     ///< it ended its process
    bool is_killer = false;    ///< it has ended its process too often to be tried again
};

/// True from the call of a handler until it has returned: an error then is the handler's.
extern bool handler_is_running;

/// The subscription whose handler or fallback this is; 0: it is a step's, or none is running.
extern int32 handled_subscription;

/// From the error that is being caught. Forgets that a handler is running.
Casualty read_casualty();

/// Runs `body`, which calls a handler, in a subtransaction, so that a failing one leaves nothing
/// behind. Nothing when it succeeded. Other errors pass, and a cancel, which is not meant for the
/// handler but for the session.
template <class F> std::optional<Casualty> attempt_handler(F &&body) {
    Casualty casualty{};
    const bool is_done = pg::attempt_expecting(
        [&](const ErrorData &) {
            if (!handler_is_running)
                return false;
            casualty = read_casualty();
            return !casualty.is_cancelled;
        },
        static_cast<F &&>(body));
    if (is_done)
        return std::nullopt;
    return casualty;
}

/// Locks the item's saga and does what is due: runs a sql step or a verify function, settles a
/// lease that ran out, passes a deadline. False when there was nothing to do (any more), or another
/// session holds the saga. Inside with_spi.
bool run_item(const DueItem &item, std::string_view worker);

/// Writes down that the item's handler failed, unless somebody else has dealt with it since.
void fail_item(const DueItem &item, std::string_view worker, const Casualty &casualty);

} // namespace stacksaga
