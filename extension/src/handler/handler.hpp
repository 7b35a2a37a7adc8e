// User functions of sql steps and subscriptions: resolved when the saga or the subscription is
// defined, checked and run as its definer.
#pragma once
#include "pg/pg.hpp"
#include "src/handler/definer.hpp"
#include "src/handler/function_ref.hpp"

namespace stacksaga {

enum class HandlerKind : uint8_t {
    action,        ///< f(stacksaga.step_call) RETURNS jsonb
    verify,        ///< f(stacksaga.step_call) RETURNS text or jsonb: as jsonb
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

/// The function that `text` names in the current search_path, with its arguments; InvalidOid where
/// there is none or `text` is no signature.
Oid find_function(const char *text);

/// The qualified signature of `text`, or `text` itself where it names no function.
const char *qualified_signature(std::string_view text);

/// The owner of the function, and how it is called.
struct HandlerCaller {
    Definer definer;
    const char *search_path; ///< while it runs; nullptr: nothing but the system's
    /// Says whose it is, for DETAIL: a clause with `definer` at its end.
    const char *(*describe)(const void *owner);
    const void *owner;  ///< what is described
    const char *remedy; ///< what to repeat when it cannot be run, for HINT
};

/// Runs `function` as the definer, with the caller's search_path. Raises what the function raises;
/// SG424 with a message that names the function when it was dropped or changed, by what is
/// committed when this is called. Its own deferred constraints have been checked when this returns.
Datum call_as_definer(const HandlerCaller &caller, const FunctionRef &function, HandlerKind kind,
                      Datum argument, bool *isnull);

/// A composite type of the extension, such as the one that handlers of messages take.
Oid type_of_schema(const char *name);
Oid message_type();

} // namespace stacksaga
