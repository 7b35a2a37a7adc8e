// User functions of sql steps and subscriptions: resolved when the saga or the subscription is
// defined, checked and run as its definer.
#pragma once
#include "pg/pg.hpp"
#include "src/saga/definition.hpp"

namespace stacksaga {

enum class HandlerKind : uint8_t {
    action,        ///< f(stacksaga.step_call) RETURNS jsonb
    verify,        ///< f(stacksaga.step_call) RETURNS text
    message,       ///< f(stacksaga.message) RETURNS void
    message_batch, ///< f(stacksaga.message[]) RETURNS void
};

/// Why a function cannot be a handler; `reason` is nullptr when it can.
struct HandlerCheck {
    Oid function = InvalidOid;
    const char *signature = nullptr; ///< qualified, as regprocedure prints it
    const char *reason = nullptr;
    bool takes_other = false; ///< the reason is the type of its argument
};

/// Resolves `text`, such as 'shop.reserve(stacksaga.step_call)', in the current search_path. Never
/// raises for what `text` says.
HandlerCheck resolve_handler(std::string_view text, HandlerKind kind, Oid definer);

/// The qualified signature of `text`, or `text` itself where it names no function.
const char *qualified_signature(std::string_view text);

/// What a step is called with, as a stacksaga.step_call datum.
struct StepCall {
    pg_uuid_t saga_id;
    std::string_view saga;
    const Step *step;
    core::Direction direction;
    int32 attempt;
    Datum input;   ///< jsonb
    Datum results; ///< jsonb
    Datum headers; ///< jsonb
    std::optional<TimestampTz> deadline;
};

/// saga_id:step_no:direction: names the intent, the same for every attempt.
const char *idempotency_key_of(const pg_uuid_t &saga_id, int16 step_no, core::Direction direction);

/// Number of columns of stacksaga.step_call.
inline constexpr int step_call_columns = 10;

/// Fills the columns of a step_call (or the first ones of a claimed_step).
void fill_step_call(const StepCall &call, Datum *values, bool *nulls);

/// Whose function is called, and how.
struct HandlerCaller {
    const char *definer;
    const char *search_path; ///< while it runs; nullptr: nothing but the system's
    const char *described;   ///< whose it is, for DETAIL: a clause with `definer` at its end
    const char *mended_by;   ///< what to repeat when it cannot be run, for HINT
};

/// Runs `function` as the definer, with the caller's search_path. Raises what the function raises;
/// SG424 with a message that names the function when it is gone or has changed. Its own deferred
/// constraints have been checked when this returns.
Datum call_as_definer(const HandlerCaller &caller, const FunctionRef &function, HandlerKind kind,
                      Datum argument, bool *isnull);

/// Fires the deferred triggers of the transaction that run_pending() is called in, as its role and
/// with its search_path: after a handler they would be fired as the definer of that one.
void check_constraints_of_caller();

/// The type that handlers of messages take.
Oid message_type();

/// Runs `function` as the definer, with the step's search_path and timeout, as
/// call_as_definer().
Datum call_handler(const Definition &definition, const FunctionRef &function, HandlerKind kind,
                   const StepCall &call, bool *isnull);

/// Whether handlers run at the top of a worker's transaction, where pending deferred constraints
/// can be fired one handler at a time; inside a query SET CONSTRAINTS has to do.
extern bool handlers_run_at_top_level;

/// Whether the last error came from call_handler itself: the function cannot be run at all.
extern bool handler_is_unusable;

} // namespace stacksaga
