#include "src/common/operator_action.hpp"

#include "pg/clock.hpp"
#include "pg/settings.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement insert_action{
    "INSERT INTO stacksaga.operator_action (acted_at, role, on_behalf_of, action, object, reason,"
    "       detail)"
    " VALUES ($1, $2::name, $3, $4, $5, $6, $7)"};

} // namespace

std::string_view acting_role() {
    return GetUserNameFromId(GetOuterUserId(), false);
}

pg::Param on_behalf_of() {
    const std::string_view whom{pg::settings.on_behalf_of};
    return whom.empty() ? pg::param_null(TEXTOID) : pg::param(whom);
}

std::string_view object_text(const char *kind, std::string_view name) {
    return psprintf("%s %.*s", kind, static_cast<int>(name.size()), name.data());
}

void record_action(const OperatorAction &a) {
    insert_action.run(pg::param_time(pg::clock_now()), pg::param(acting_role()), on_behalf_of(),
                      pg::param(a.action), pg::param(a.object), pg::param(a.reason),
                      pg::param(a.detail));
}

} // namespace stacksaga
