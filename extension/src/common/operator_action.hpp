// The operator who changes the installation, and the role it acts for; the record of operators'
// actions, where no other table holds it.
#pragma once
#include "pg/pg.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"

namespace stacksaga {

/// The role that acts: that of the session, whatever owns the function that it calls, or the
/// definer of the handler that does.
std::string_view acting_role();

/// stacksaga.on_behalf_of; NULL when it is empty, and for a handler, which could set it.
pg::Param on_behalf_of();

/// The step or the subscription whose handler acts; NULL where none does.
pg::Param handler_that_acts();

/// "subscription mailer"; palloc'ed in the current context.
std::string_view object_text(const char *kind, std::string_view name);

/// The reason of an action, the argument `i`: SG400 when it is null, empty or too long.
std::string_view required_reason(const pg::Arguments &arguments, int i);

/// Until when a pause lasts, the argument `i`; nothing when it is NULL. SG400 when it is not in the
/// future, or infinite.
std::optional<TimestampTz> optional_until(const pg::Arguments &arguments, int i);
/// As the record of a pause says it; nothing without an end.
std::optional<std::string_view> until_text(std::optional<TimestampTz> until);

struct OperatorAction {
    std::string_view action;
    std::string_view object; ///< what it was done to
    std::optional<std::string_view> reason{};
    std::optional<std::string_view> detail{};
};

/// Records it in the transaction of the action. Inside with_spi.
void record_action(const OperatorAction &a);

/// Removes about `limit` records at the most whose retention is over, that of failed sagas: those
/// of this table, and those on schedules. Returns how many. Inside with_spi.
int64 remove_expired_actions(int64 limit);

} // namespace stacksaga
