#include "src/common/operator_action.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/settings.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/caller.hpp"
#include "src/common/kept_rows.hpp"
#include "src/common/limits.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement insert_action{
    "INSERT INTO stacksaga.operator_action (acted_at, role, on_behalf_of, action, object, reason,"
    "       detail, handler)"
    " VALUES ($1, $2::name, $3, $4, $5, $6, $7, $8)"};

// The oldest ones, with all of the instant of the last: a table of records has no other key.
#define INSTANT_OF(row) "(extract(epoch FROM " row ".acted_at) * 1000000)::bigint::text"
#define IS_DUE(table, row) row ".acted_at < $1" IS_NOT_KEPT(table, INSTANT_OF(row), "$2")
#define FORGET(table)                                                                                 \
    "DELETE FROM stacksaga." table " AS d WHERE d.acted_at <= ("                                      \
    "  SELECT max(o.acted_at) FROM (SELECT n.acted_at FROM stacksaga." table " AS n"                  \
    "                                WHERE " IS_DUE(                                                  \
        table,                                                                                        \
        "n") "                                ORDER BY n.acted_at LIMIT $3) AS o) AND " IS_DUE(table, \
                                                                                               "d")
#define FIRST(table)                                                                               \
    "SELECT " INSTANT_OF("n") " FROM stacksaga." table                                             \
                              " AS n WHERE " IS_DUE(table, "n") " ORDER BY n.acted_at LIMIT 1"
struct Actions {
    const char *table;
    pg::Statement forget;
    pg::Statement first;
};
#define ACTIONS(table)                                                                             \
    Actions {                                                                                      \
        table, pg::Statement{FORGET(table)}, pg::Statement {                                       \
            FIRST(table)                                                                           \
        }                                                                                          \
    }
constinit std::array actions{ACTIONS("operator_action"), ACTIONS("schedule_action")};
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

std::string_view required_reason(const pg::Arguments &arguments, int i) {
    const std::string_view reason = arguments.required_text(i, "reason");
    check_length(reason, "reason", reason_bytes_max);
    return reason;
}

std::optional<TimestampTz> optional_until(const pg::Arguments &arguments, int i) {
    if (arguments.is_null(i))
        return std::nullopt;
    const TimestampTz until = DatumGetTimestampTz(arguments.datum(i));
    if (TIMESTAMP_NOT_FINITE(until) || until <= pg::clock_now())
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"until\" is out of range"),
                        errdetail("The value is %s.", DatumGetCString(DirectFunctionCall1(
                                                          timestamptz_out, arguments.datum(i)))),
                        errhint("Pass an instant in the future, or leave it out for a pause that "
                                "lasts until it is ended.")));
    return until;
}

std::optional<std::string_view> until_text(std::optional<TimestampTz> until) {
    if (!until)
        return std::nullopt;
    return std::string_view{psprintf("until %s", timestamptz_to_str(*until))};
}

void record_action(const OperatorAction &a) {
    insert_action.run(pg::param_time(pg::clock_now()), pg::param(acting_role()), on_behalf_of(),
                      pg::param(a.action), pg::param(a.object), pg::param(a.reason),
                      pg::param(a.detail), handler_that_acts());
}

int64 remove_expired_actions(int64 limit) {
    if (pg::settings.failed_saga_retention < 0)
        return 0;
    const TimestampTz now = pg::clock_now();
    const TimestampTz cutoff =
        pg::time_plus(now, -int64{pg::settings.failed_saga_retention} * USECS_PER_SEC);
    int64 removed = 0;
    for (Actions &a : actions) {
        const auto remove = [&](int64 wanted) {
            const auto count = static_cast<int64>(
                a.forget.touch(pg::param_time(cutoff), pg::param_time(now), pg::param(wanted)));
            return Removed{.found = count, .rows = count};
        };
        const auto first = [&]() -> std::optional<std::string_view> {
            const pg::Rows rows = a.first.run(pg::param_time(cutoff), pg::param_time(now));
            return rows.empty() ? std::nullopt : std::optional{rows.text(0)};
        };
        removed +=
            remove_passing_over(a.table, now, std::max<int64>(limit - removed, 0), remove, first);
    }
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
