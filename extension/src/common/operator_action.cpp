#include "src/common/operator_action.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/function.hpp"
#include "pg/scope.hpp"
#include "pg/settings.hpp"
#include "src/common/caller.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement insert_action{
    "INSERT INTO stacksaga.operator_action (acted_at, role, on_behalf_of, action, object, reason,"
    "       detail, handler)"
    " VALUES ($1, $2::name, $3, $4, $5, $6, $7, $8)"};

// The oldest ones, with all of the instant of the last: a table of records has no other key.
#define FORGET(table)                                                                              \
    "DELETE FROM stacksaga." table " WHERE acted_at <= ("                                          \
    "  SELECT max(o.acted_at) FROM (SELECT acted_at FROM stacksaga." table                         \
    "                                WHERE acted_at < $1 ORDER BY acted_at LIMIT $2) AS o)"
constinit std::array forget{pg::Statement{FORGET("operator_action")},
                            pg::Statement{FORGET("schedule_action")}};
constexpr int32 actions_max = 100000;

} // namespace

std::string_view acting_role() {
    return GetUserNameFromId(who_asks().recorded_role, false);
}

pg::Param on_behalf_of() {
    const std::string_view whom{pg::settings.on_behalf_of};
    return whom.empty() || who_asks().handler != nullptr ? pg::param_null(TEXTOID)
                                                         : pg::param(whom);
}

pg::Param handler_that_acts() {
    const char *handler = who_asks().handler;
    return handler == nullptr ? pg::param_null(TEXTOID) : pg::param(std::string_view{handler});
}

std::string_view object_text(const char *kind, std::string_view name) {
    return psprintf("%s %.*s", kind, static_cast<int>(name.size()), name.data());
}

void record_action(const OperatorAction &a) {
    insert_action.run(pg::param_time(pg::clock_now()), pg::param(acting_role()), on_behalf_of(),
                      pg::param(a.action), pg::param(a.object), pg::param(a.reason),
                      pg::param(a.detail), handler_that_acts());
}

int64 remove_expired_actions(int64 limit) {
    if (pg::settings.failed_saga_retention < 0)
        return 0;
    const TimestampTz cutoff =
        pg::time_plus(pg::clock_now(), -int64{pg::settings.failed_saga_retention} * USECS_PER_SEC);
    int64 removed = 0;
    for (pg::Statement &statement : forget)
        if (removed < limit)
            removed += static_cast<int64>(
                statement.touch(pg::param_time(cutoff), pg::param(limit - removed)));
    return removed;
}

// expire_actions(max_actions) -> bigint
STACKSAGA_FUNCTION(expire_actions) {
    const int32 limit = pg::Arguments(fcinfo).required_int4(0, "max_actions");
    if (limit < 1 || limit > actions_max)
        ereport(ERROR,
                (errcode(pg::sg400), errmsg("argument \"max_actions\" is out of range"),
                 errdetail("The value is %d.", limit), errhint("Use 1 to %d.", actions_max)));
    PG_RETURN_INT64(pg::with_spi([&] { return remove_expired_actions(limit); }));
}

} // namespace stacksaga
