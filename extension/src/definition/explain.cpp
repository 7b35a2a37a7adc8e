// Answers about definitions and this library, for people.
#include "core/common/retry.hpp"
#include "core/saga/definition.hpp"
#include "core/saga/step_kind.hpp"
#include "core/time/length.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/settings.hpp"
#include "pg/statement/array.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/definition/stored_definition.hpp"
#include "src/handler/handler.hpp"

namespace stacksaga {

// definition_id(saga, version) -> integer
STACKSAGA_FUNCTION(definition_id) {
    pg::Arguments args(fcinfo);
    std::string_view saga = args.required_text(0, "saga");
    std::optional<int32> version;
    if (!args.is_null(1))
        version = args.required_int4(1, "version");
    PG_RETURN_INT32(pg::with_spi([&] { return find_definition(saga, version).id; }));
}

// handler_objection(signature, returns, definer) -> text
STACKSAGA_FUNCTION(handler_objection) {
    pg::Arguments args(fcinfo);
    std::string_view signature = args.required_text(0, "signature");
    args.require(1, "returns");
    args.require(2, "definer");
    const HandlerKind kind =
        DatumGetObjectId(args.datum(1)) == JSONBOID ? HandlerKind::action : HandlerKind::verify;
    const Oid definer = get_role_oid(NameStr(*DatumGetName(args.datum(2))), true);
    const char *reason = OidIsValid(definer) ? resolve_handler(signature, kind, definer).reason
                                             : "the defining role does not exist";
    if (reason == nullptr)
        PG_RETURN_NULL();
    PG_RETURN_TEXT_P(cstring_to_text(reason));
}

// setting(name) -> text. Unlike current_setting() it also finds the settings of this library in a
// session that has not loaded it yet.
STACKSAGA_FUNCTION(setting) {
    std::string_view name = pg::Arguments(fcinfo).required_text(0, "name");
    const char *value = GetConfigOption(
        psprintf("stacksaga.%.*s", static_cast<int>(name.size()), name.data()), true, false);
    if (value == nullptr)
        ereport(
            ERROR,
            (errcode(pg::sg404), errmsg("setting does not exist"),
             errdetail("There is no setting stacksaga.%s.", clip(name)),
             errhint("SELECT name FROM pg_settings WHERE name LIKE 'stacksaga.%%' lists them.")));
    PG_RETURN_TEXT_P(cstring_to_text(value));
}

// library_version() -> text
STACKSAGA_FUNCTION(library_version) {
    (void)fcinfo;
    PG_RETURN_TEXT_P(pg::make_text(STACKSAGA_VERSION));
}

// --------------------------------------------------------------------------------- explain_retries
//
// What the retries of a saga's steps add up to, with those of clients and brokers around it, and
// whether the dedupe window outlasts them.

namespace {

constexpr int64 many_calls = 100;
constexpr size_t outer_layers_max = 100;

constinit pg::Statement select_idempotent{"SELECT step_no FROM stacksaga.definition_step"
                                          " WHERE definition_id = $1 AND effect = 'idempotent'"};

int64 saturating_product(int64 a, int64 b) {
    int64 product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}
int64 saturating_sum(int64 a, int64 b) {
    int64 sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/// The attempts of everything around the saga, multiplied.
int64 read_outer_attempts(const pg::Arguments &args) {
    args.require(1, "outer_attempts");
    pg::Elements layers = pg::array_argument(args, 1, "outer_attempts", INT4OID);
    auto refuse = [](const char *detail) {
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"outer_attempts\" is not valid"),
                        errdetail_internal("%s", detail),
                        errhint("List the attempts of each layer around the saga, 1 or more, such "
                                "as '{3,5}'.")));
    };
    if (static_cast<size_t>(layers.count) > outer_layers_max)
        refuse(psprintf("It has %d elements, %zu are allowed.", layers.count, outer_layers_max));
    int64 product = 1;
    for (int i = 0; i < layers.count; ++i) {
        if (!layers.has(i))
            refuse(psprintf("Element %d is NULL.", i + 1));
        if (DatumGetInt32(layers.values[i]) < 1)
            refuse(psprintf("Element %d is %d.", i + 1, DatumGetInt32(layers.values[i])));
        product = saturating_product(product, DatumGetInt32(layers.values[i]));
    }
    return product;
}

/// How often one idempotency key is used. Without a value: without bound.
struct Repeats {
    std::optional<int64> attempts;
    std::optional<int64> window_us;
};

Repeats repeats_of(const core::RetryPolicy &policy, core::Length timeout) {
    if (policy.max_attempts == 0)
        return {};
    return {policy.max_attempts, core::longest_window(policy, core::longest(timeout))};
}

/// A step that only waits has one attempt.
Repeats wait_of(const Step &step) {
    const core::Length length =
        step.traits().waits_for == core::StepWait::time ? step.delay : step.timeout;
    Repeats wait{.attempts = 1, .window_us = core::longest(length)};
    if (length == core::no_timeout)
        wait.window_us.reset();
    return wait;
}

/// A fallback has the same number of attempts, after those of the action.
Repeats repeats_of(const Step &step) {
    Repeats all = step.traits().has_effect ? repeats_of(step.policy, step.timeout) : wait_of(step);
    if (!step.has_fallback)
        return all;
    const Repeats more = repeats_of(step.policy, step.timeout);
    if (!all.attempts || !more.attempts)
        return {};
    all.attempts = saturating_sum(*all.attempts, *more.attempts);
    if (all.window_us)
        all.window_us = saturating_sum(*all.window_us, *more.window_us);
    return all;
}

/// Sentences, put together.
class Warning {
public:
    Warning() { initStringInfo(&text_); }
    void add(const char *sentence) {
        appendStringInfo(&text_, "%s%s", text_.len == 0 ? "" : "; ", sentence);
    }
    pg::Column column() const {
        return text_.len == 0 ? pg::null() : pg::of(PointerGetDatum(cstring_to_text(text_.data)));
    }

private:
    StringInfoData text_;
};

struct Layers {
    int64 outer;     ///< the attempts around the saga, multiplied
    int64 dedupe_us; ///< for how long an effect is remembered
};

/// `what` names the attempts: the step's, or its compensation's.
void warn_of_window(Warning &warning, const char *what, const Repeats &repeats, int64 dedupe_us) {
    if (!repeats.attempts)
        warning.add(psprintf("%s have no limit: no dedupe window outlasts them", what));
    else if (repeats.window_us && *repeats.window_us >= dedupe_us)
        warning.add(
            psprintf("%s may come for %s, and effects are remembered for %s: a late one may "
                     "be done again",
                     what, interval_text(*repeats.window_us), interval_text(dedupe_us)));
}

void warn(Warning &warning, const Definition &d, const Step &step, const Repeats &repeats,
          bool is_idempotent, const Layers &layers) {
    if (!step.traits().has_effect) {
        if (repeats.attempts && !repeats.window_us)
            warning.add("it waits without bound");
        if (step.has_fallback && !is_idempotent)
            warn_of_window(warning, "the attempts of its fallback",
                           repeats_of(step.policy, step.timeout == core::no_timeout ? core::Length{}
                                                                                    : step.timeout),
                           layers.dedupe_us);
        return;
    }
    if (!is_idempotent) {
        warn_of_window(warning, "its attempts", repeats, layers.dedupe_us);
        if (step.compensable)
            warn_of_window(warning, "the attempts of its compensation",
                           repeats_of(d.compensation_policy, step.timeout), layers.dedupe_us);
    } else if (!repeats.attempts) {
        warning.add("its attempts have no limit");
    }
    if (!repeats.attempts)
        return;
    const int64 calls = saturating_product(*repeats.attempts, layers.outer);
    if (calls > many_calls)
        warning.add(psprintf("up to " INT64_FORMAT " calls: " INT64_FORMAT
                             " attempts here, " INT64_FORMAT
                             " times around it; let one layer retry, and the others give up",
                             calls, *repeats.attempts, layers.outer));
}

pg::Column interval_column(std::optional<int64> microseconds) {
    if (!microseconds)
        return pg::null();
    return pg::of(
        DirectFunctionCall1(interval_justify_hours, pg::interval_of_microseconds(*microseconds)));
}

void add_step(pg::ResultSet &result, const Definition &d, const Step &step, bool is_idempotent,
              const Layers &layers) {
    const Repeats repeats = repeats_of(step);
    Warning warning;
    warn(warning, d, step, repeats, is_idempotent, layers);
    pg::Column attempts = pg::null(), calls = pg::null();
    if (repeats.attempts) {
        attempts = pg::of(Int32GetDatum(static_cast<int32>(
            std::min<int64>(*repeats.attempts, std::numeric_limits<int32>::max()))));
        calls = pg::of(Int64GetDatum(saturating_product(*repeats.attempts, layers.outer)));
    }
    result.add(pg::of(PointerGetDatum(pg::make_text(step.name))), attempts,
               interval_column(repeats.window_us), calls, interval_column(layers.dedupe_us),
               warning.column());
}

} // namespace

// explain_retries(saga, outer_attempts) -> TABLE(step, attempts, longest_window, worst_case_calls,
//                                                dedupe_window, warning)
STACKSAGA_FUNCTION(explain_retries) {
    pg::Arguments args(fcinfo);
    std::string_view saga = args.required_text(0, "saga");
    const Layers layers{.outer = read_outer_attempts(args),
                        .dedupe_us = int64{pg::settings.dedupe_retention} * USECS_PER_SEC};
    pg::ResultSet result(fcinfo);
    pg::with_spi([&] {
        const Definition &d = find_definition(saga, std::nullopt);
        auto *idempotent = static_cast<bool *>(palloc0(d.steps.size() + 1));
        pg::Rows rows = select_idempotent.run(pg::param(d.id));
        for (uint64 i = 0; i < rows.count(); ++i)
            idempotent[rows.int2(i)] = true;
        for (const Step &step : d.steps)
            add_step(result, d, step, idempotent[step.no], layers);
    });
    return pg::ResultSet::finish();
}

} // namespace stacksaga
