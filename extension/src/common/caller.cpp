#include "src/common/caller.hpp"

namespace stacksaga {

constinit ActingHandler acting_handler{};

WhoAsks who_asks() {
    if (InSecurityRestrictedOperation())
        ereport(ERROR,
                (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                 errmsg("cannot tell who calls within a security-restricted operation"),
                 errdetail("A statement such as ANALYZE, CREATE INDEX or REFRESH MATERIALIZED VIEW "
                           "evaluates an expression that calls this function."),
                 errhint("Call it in a statement of a session.")));
    const bool is_handler = OidIsValid(acting_handler.definer);
    return {.role = GetUserId(),
            .is_superuser =
                superuser() || (!InLocalUserIdChange() && superuser_arg(GetSessionUserId())),
            .recorded_role = is_handler ? acting_handler.definer : GetOuterUserId(),
            .handler = is_handler ? acting_handler.describe() : nullptr};
}

} // namespace stacksaga
