// Arguments of create_subscription and alter_subscription: functions and the retry policy.
#pragma once
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "src/handler/handler.hpp"

namespace stacksaga {

/// A user's function as it was resolved; all is empty without a function.
struct NewFunction {
    HandlerCheck check;
    bool takes_batch = false;

    explicit operator bool() const { return check.signature != nullptr; }
    pg::Param signature() const {
        return *this ? pg::param(std::string_view{check.signature}) : pg::param_null(TEXTOID);
    }
    pg::Param oid() const {
        return pg::param_datum(OIDOID, ObjectIdGetDatum(check.function), !*this);
    }
};

inline constexpr int policy_fields = 7;
using Policy = std::array<pg::Param, policy_fields>;

/// The argument resolved in the current search_path, for the current role; empty when it is NULL.
/// SG400 when it is no handler.
NewFunction function_argument(const pg::Arguments &arguments, int i, const char *name,
                              bool may_take_batch);

/// The fields of the composite argument; nothing when it is NULL. SG400 when one is out of range.
std::optional<Policy> policy_argument(const pg::Arguments &arguments, int i);

/// As the owner, with settings on which neither SQL nor the text of `content` depends.
template <class F> void with_fixed_settings(F &&body) {
    static constexpr std::array settings{pg::pinned_path, pg::Setting{"intervalstyle", "postgres"}};
    pg::with_settings(settings, [&] { pg::as_owner([&] { pg::with_spi(body); }); });
}

} // namespace stacksaga
