#include "src/outbox/subscription/subscription_argument.hpp"

#include "core/common/retry.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "src/common/limits.hpp"

namespace stacksaga {

namespace {

[[noreturn]] void refuse_policy(const char *field, const char *rule, const pg::Param &value) {
    const char *text = "NULL";
    if (!value.isnull) {
        Oid output;
        bool is_varlena;
        getTypeOutputInfo(value.type, &output, &is_varlena);
        text = OidOutputFunctionCall(output, value.value);
    }
    ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"retry\" is out of range"),
                    errdetail("Its field \"%s\" %s; the value is %s.", field, rule, clip(text)),
                    errhint("Look at the arguments of stacksaga.retry_policy().")));
}

void check_states(const pg::Param &list, const char *field) {
    const char *bad = list.isnull ? nullptr : find_bad_state(list.value);
    if (bad != nullptr)
        refuse_policy(field,
                      psprintf("holds %s, which is neither an SQLSTATE nor a class of them", bad),
                      list);
}

void check_policy(const Policy &p) {
    static constexpr std::array<const char *, policy_fields> names{
        "max_attempts", "initial_interval", "multiplier", "max_interval",
        "jitter",       "retry_on",         "never_on"};
    for (size_t i = 0; i < 5; ++i)
        if (p[i].isnull)
            refuse_policy(names[i], "must not be null", p[i]);
    const core::RetryPolicy policy{
        .max_attempts = DatumGetInt32(p[0].value),
        .initial_interval_us = pg::interval_microseconds(p[1].value, "initial_interval", false),
        .max_interval_us = pg::interval_microseconds(p[3].value, "max_interval", false),
        .multiplier = DatumGetFloat8(p[2].value),
        .jitter = DatumGetFloat8(p[4].value)};
    const core::PolicyField bad = core::validate(policy);
    for (size_t i = 0; i < 5; ++i)
        if (core::name_of(bad) == names[i])
            refuse_policy(names[i], core::rule_of(bad).data(), p[i]);
    check_states(p[5], names[5]);
    check_states(p[6], names[6]);
}

} // namespace

NewFunction function_argument(const pg::Arguments &arguments, int i, const char *name,
                              bool may_take_batch) {
    NewFunction f;
    if (arguments.is_null(i))
        return f;
    const std::string_view text = pg::view_of_text(arguments.datum(i));
    f.check = resolve_handler(text, HandlerKind::message, GetUserId());
    if (may_take_batch && f.check.takes_other) {
        f.check = resolve_handler(text, HandlerKind::message_batch, GetUserId());
        f.takes_batch = true;
    }
    if (f.check.reason != nullptr)
        ereport(ERROR, (errcode(pg::sg400),
                        errmsg("argument \"%s\" is not a handler: %s", name, f.check.reason),
                        errdetail("The value is \"%s\".", clip(text)),
                        may_take_batch
                            ? errhint("Name a function with its argument: f(stacksaga.message) or "
                                      "f(stacksaga.message[]), and RETURNS void.")
                            : errhint("Name a function with its argument: f(stacksaga.message), "
                                      "and RETURNS void.")));
    return f;
}

std::optional<Policy> policy_argument(const pg::Arguments &arguments, int i) {
    static constexpr std::array<Oid, policy_fields> types{
        INT4OID, INTERVALOID, FLOAT8OID, INTERVALOID, FLOAT8OID, TEXTARRAYOID, TEXTARRAYOID};
    if (arguments.is_null(i))
        return std::nullopt;
    HeapTupleHeader row = DatumGetHeapTupleHeader(arguments.datum(i));
    Policy policy{};
    for (size_t field = 0; field < policy.size(); ++field) {
        bool isnull;
        Datum value = GetAttributeByNum(row, static_cast<AttrNumber>(field + 1), &isnull);
        policy[field] = pg::param_datum(types[field], value, isnull);
    }
    check_policy(policy);
    return policy;
}

} // namespace stacksaga
