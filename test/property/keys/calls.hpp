// The calls of an episode as SQL.
#pragma once

#include "model.hpp"

namespace stacksaga::property::keys {

/// A request as it is written, and what all equal ones have in common.
struct Request {
    const char *text;
    const char *canonical;
};
constexpr Request requests[] = {{R"({"item": "tea", "amount": 3})", "a"},
                                {R"({"amount":3,  "item":"tea"})", "a"},
                                {R"({"item": "tea", "amount": 3.0})", "a"},
                                {R"({"item": "tea", "amount": 3.5})", "b"},
                                {R"({"item": "tea", "amount": 3, "note": null})", "c"}};

/// `stacksaga.dedupe_retention` of the sessions: what a retention of NULL stands for.
constexpr int default_retention = 31;

std::string quote(const std::optional<std::string> &text);
std::string interval_of(int half_hours);
/// SQL of the call, whose `text` and `request_text` are jsonb where the function takes that.
std::string sql_of(const Call &call, const std::string &scope, const char *request_text,
                   bool names_retention);

/// A call that is refused for its arguments, whatever the state; `i` chooses it.
struct Invalid {
    const char *sql; ///< {} is the scope
    const char *sqlstate;
};
const std::vector<Invalid> &invalid_calls();

} // namespace stacksaga::property::keys
