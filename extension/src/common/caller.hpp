// The caller: the one place that decides for which role a call acts.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// A handler that is running. What it calls, its definer asks for, in whatever session it runs.
struct ActingHandler {
    Oid definer = InvalidOid; ///< invalid: none is running
    const char *(*describe)() = nullptr;
};
extern ActingHandler acting_handler;

struct WhoAsks {
    Oid role; ///< whose rights decide, in a function that runs as its caller
    /// Also under SET ROLE in a session of a superuser, but not for what a handler or a SECURITY
    /// DEFINER function of somebody else calls there.
    bool is_superuser;
    Oid recorded_role;   ///< that the session acts as, whatever owns the function that it calls
    const char *handler; ///< such as `step "charge" of saga ...`; nullptr: none
};

/// 42501 in a security-restricted operation: there the session's role belongs to the process that
/// runs ANALYZE, such as autovacuum, and an index expression of any role may be the caller.
WhoAsks who_asks();

} // namespace stacksaga
