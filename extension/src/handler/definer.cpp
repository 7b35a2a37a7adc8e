#include "src/handler/definer.hpp"

#include "src/common/caller.hpp"

namespace stacksaga {

const char *objection_to(const Definer &definer) {
    const Oid role = get_role_oid(definer.name, true);
    if (!OidIsValid(role))
        return "the defining role does not exist";
    if (role != definer.oid)
        return "the defining role was dropped, and another role has its name";
    return nullptr;
}

Caller current_caller() {
    const WhoAsks who = who_asks();
    return {.role = {.name = GetUserNameFromId(who.role, false), .oid = who.role},
            .is_superuser = who.is_superuser};
}

bool may_replace(const Definer &definer, const Caller &caller) {
    return caller.is_superuser ||
           (objection_to(definer) == nullptr && is_member_of_role(caller.role.oid, definer.oid));
}

} // namespace stacksaga
