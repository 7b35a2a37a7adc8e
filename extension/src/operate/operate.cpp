// Actions of operators on one saga or on many: cancel, compensate, suspend, resume, retry, resolve.
// Each action is recorded with the role that took it, the instant and the reason.
#include "core/saga/saga.hpp"
#include "core/saga/saga_operators.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/step_kind.hpp"
#include "core/work/spread.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/random.hpp"
#include "pg/statement/array.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/saga/child.hpp"
#include "src/saga/store.hpp"

namespace stacksaga {

namespace {

using core::Status;

enum class Action : uint8_t { cancel, suspend, resume, retry, compensate };

struct Operation {
    Action action;
    std::string_view reason;
    int64 delay = 0; ///< of the attempts that it makes due, in microseconds
};

struct Operated {
    core::Status before;
    core::Status after;
};

[[noreturn]] void refuse(const Saga &saga, const char *action, const core::Refusal &refusal) {
    const auto text = [](std::string_view s) { return pnstrdup(s.data(), s.size()); };
    ereport(ERROR,
            (errcode(refusal.is_misuse ? pg::sg400 : pg::sg409),
             errmsg("saga %s cannot be %s", uuid_text(saga.id), action),
             errdetail("It is %s%s.", core::name_of(saga.status()).data(), text(refusal.because)),
             errhint("%s", text(refusal.hint))));
}

std::optional<core::Refusal> cancel(Saga &saga, const Operation &o) {
    return core::cancel_saga(saga, psprintf("cancelled: %s", clip(o.reason)));
}
std::optional<core::Refusal> suspend(Saga &saga, const Operation &) {
    return core::suspend_saga(saga);
}
std::optional<core::Refusal> resume(Saga &saga, const Operation &o) {
    return core::resume_saga(saga, o.delay);
}
std::optional<core::Refusal> retry(Saga &saga, const Operation &o) {
    return core::retry_saga(saga, o.delay);
}
std::optional<core::Refusal> compensate(Saga &saga, const Operation &o) {
    return core::compensate_saga(saga, psprintf("an operator has it undone: %s", clip(o.reason)),
                                 o.delay);
}

/// Indexed by Action; the words are those of saga_action.
struct ActionRule {
    std::string_view name;
    const char *done; ///< as in "cannot be cancelled"
    std::optional<core::Refusal> (*run)(Saga &saga, const Operation &o);
};
constexpr std::array action_rules{
    ActionRule{"cancel", "cancelled", cancel},
    ActionRule{"suspend", "suspended", suspend},
    ActionRule{"resume", "resumed", resume},
    ActionRule{"retry", "tried again", retry},
    ActionRule{"compensate", "compensated", compensate},
};

/// Which direction of the step resolve_step() settles.
core::Direction resolve(Saga &saga, const Step &step, core::Resolution r, std::string_view reason) {
    if (step.waits_for() == core::StepWait::child) {
        const std::optional<core::Child> child = load_child(saga, step);
        r.child_stands = child && !core::is_final(child->status);
    }
    if (r.outcome != core::ResolveOutcome::done)
        r.error =
            psprintf("an operator says that the step was %s: %s",
                     r.outcome == core::ResolveOutcome::never_done ? "not done and never will be"
                                                                   : "not done",
                     clip(reason));
    r.role = acting_role();
    const core::Resolved resolved = core::resolve_step(saga, step, r, pg::random_fraction());
    if (resolved.refusal)
        refuse(saga, "resolved", *resolved.refusal);
    write_saga(saga);
    return resolved.direction;
}

/// The value of an argument that must be one of several words.
template <class E>
E required_word(std::string_view text, const char *name, std::optional<E> (*find)(std::string_view),
                const char *words) {
    const std::optional<E> value = find(text);
    if (!value)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"%s\" is not valid", name),
                        errdetail("The value is \"%s\".", clip(text)), errhint("Use %s.", words)));
    return *value;
}

/// Locks the saga, applies the action and records it. SG404 when there is no such saga, SG409 when
/// its status does not allow the action. Inside with_spi.
Operated operate(const pg_uuid_t &id, const Operation &o) {
    Saga &saga = require_saga(id, pg::clock_now());
    const Status before = saga.status();
    const ActionRule &rule = action_rules[static_cast<size_t>(o.action)];
    if (const std::optional<core::Refusal> refusal = rule.run(saga, o))
        refuse(saga, rule.done, *refusal);
    write_saga(saga);
    write_action(saga, {.action = rule.name, .status_before = before, .reason = o.reason});
    return {before, saga.status()};
}

Datum operate_on(FunctionCallInfo fcinfo, Action action) {
    pg::Arguments arguments(fcinfo);
    pg_uuid_t id = arguments.required_uuid(0, "saga_id");
    std::string_view reason = required_reason(arguments, 1);
    core::Status status =
        pg::with_spi([&] { return operate(id, {.action = action, .reason = reason}).after; });
    PG_RETURN_TEXT_P(pg::make_text(core::name_of(status)));
}

} // namespace

// cancel_saga(saga_id, reason) -> text
STACKSAGA_FUNCTION(cancel_saga) {
    return operate_on(fcinfo, Action::cancel);
}
// suspend_saga(saga_id, reason) -> text
STACKSAGA_FUNCTION(suspend_saga) {
    return operate_on(fcinfo, Action::suspend);
}
// resume_saga(saga_id, reason) -> text
STACKSAGA_FUNCTION(resume_saga) {
    return operate_on(fcinfo, Action::resume);
}
// retry_saga(saga_id, reason) -> text
STACKSAGA_FUNCTION(retry_saga) {
    return operate_on(fcinfo, Action::retry);
}
// compensate_saga(saga_id, reason) -> text
STACKSAGA_FUNCTION(compensate_saga) {
    return operate_on(fcinfo, Action::compensate);
}

// resolve_step(saga_id, step, outcome, output, reason, direction) -> text
STACKSAGA_FUNCTION(resolve_step) {
    pg::Arguments arguments(fcinfo);
    pg_uuid_t id = arguments.required_uuid(0, "saga_id");
    std::string_view name = arguments.required_text(1, "step");
    std::string_view outcome = arguments.required_text(2, "outcome");
    core::Resolution r{.outcome = required_word(outcome, "outcome", core::resolve_outcome_of,
                                                "done, not_done or never"),
                       .direction = std::nullopt,
                       .output = value_or_null(arguments.datum(3), arguments.is_null(3))};
    if (!arguments.is_null(3))
        check_payload(arguments.datum(3), "output");
    if (!arguments.is_null(3) && r.outcome != core::ResolveOutcome::done)
        ereport(ERROR, (errcode(pg::sg400), errmsg("a step that was not done has no output"),
                        errdetail("The outcome is %s and an output is given.", clip(outcome)),
                        errhint("Leave output out.")));
    std::optional<std::string_view> reason;
    if (!arguments.is_null(4))
        reason = required_reason(arguments, 4);
    if (const std::optional<std::string_view> direction = arguments.optional_text(5))
        r.direction = required_word(*direction, "direction", core::direction_of,
                                    "act or compensate, or leave it out");
    core::Status status = pg::with_spi([&] {
        Saga &saga = require_saga(id, pg::clock_now());
        const Step *step = saga.definition->find(name);
        if (step == nullptr)
            raise_unknown_step(saga, name);
        const core::Status before = saga.status();
        resolve(saga, *step, r, reason.value_or("no reason given"));
        write_action(saga, {.action = "resolve",
                            .status_before = before,
                            .reason = reason,
                            .step_no = step->no,
                            .outcome = outcome});
        return saga.status();
    });
    PG_RETURN_TEXT_P(pg::make_text(core::name_of(status)));
}

// ------------------------------------------------------------------------------ many sagas at once
//
// cancel_sagas, suspend_sagas, resume_sagas, retry_sagas, compensate_sagas: a dry run by default. A
// query of the view sagas chooses the sagas, with any predicate:
//
//   SELECT * FROM stacksaga.cancel_sagas(ARRAY(SELECT saga_id FROM stacksaga.sagas WHERE ...),
//   'why')

namespace {

/// The result for one saga, or its prediction in a dry run; the caller's context owns it.
struct Outcome {
    bool done;
    Operated operated;
    const char *sqlstate;
    const char *error;
};

bool is_refusal(const ErrorData &error) {
    return strncmp(unpack_sql_state(error.sqlerrcode), "SG", 2) == 0;
}

/// Runs in a subtransaction: a saga whose status does not allow the action does not affect the
/// others, and a dry run leaves no change behind.
Outcome operate_guarded(const pg_uuid_t &id, const Operation &operation, bool dry_run) {
    MemoryContext memory = CurrentMemoryContext;
    ResourceOwner owner = CurrentResourceOwner;
    Outcome outcome{};
    Outcome *volatile result = &outcome;
    BeginInternalSubTransaction(nullptr);
    MemoryContextSwitchTo(memory);
    PG_TRY();
    {
        Operated operated = pg::with_spi([&] { return operate(id, operation); });
        *result = {.done = true, .operated = operated, .sqlstate = nullptr, .error = nullptr};
        if (dry_run)
            RollbackAndReleaseCurrentSubTransaction();
        else
            ReleaseCurrentSubTransaction();
    }
    PG_CATCH();
    {
        MemoryContextSwitchTo(memory);
        ErrorData *error = CopyErrorData();
        FlushErrorState();
        RollbackAndReleaseCurrentSubTransaction();
        if (!is_refusal(*error)) // the subtransaction is undone, so the caller may catch the error
            ReThrowError(error);
        result->sqlstate = pstrdup(unpack_sql_state(error->sqlerrcode));
        result->error = psprintf("%s: %s", error->message,
                                 error->detail != nullptr ? error->detail : "no detail");
    }
    PG_END_TRY();
    MemoryContextSwitchTo(memory);
    CurrentResourceOwner = owner;
    return outcome;
}

/// Sorted and once each: two operators with overlapping lists never wait for each other in a
/// circle.
std::span<pg_uuid_t> read_ids(const pg::Arguments &arguments) {
    arguments.require(0, "saga_ids");
    pg::Elements given = pg::array_argument(arguments, 0, "saga_ids", UUIDOID);
    auto *ids = static_cast<pg_uuid_t *>(
        palloc(sizeof(pg_uuid_t) * (static_cast<size_t>(given.count) + 1)));
    for (int i = 0; i < given.count; ++i) {
        if (!given.has(i))
            ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"saga_ids\" is not valid"),
                            errdetail("Element %d is NULL.", i + 1),
                            errhint("Pass ARRAY(SELECT saga_id FROM stacksaga.sagas WHERE ...).")));
        ids[i] = *DatumGetUUIDP(given.values[i]);
    }
    auto less = [](const pg_uuid_t &a, const pg_uuid_t &b) {
        return memcmp(a.data, b.data, UUID_LEN) < 0;
    };
    auto same = [](const pg_uuid_t &a, const pg_uuid_t &b) {
        return memcmp(a.data, b.data, UUID_LEN) == 0;
    };
    std::sort(ids, ids + given.count, less);
    return {ids, static_cast<size_t>(std::unique(ids, ids + given.count, same) - ids)};
}

Datum operate_on_many(FunctionCallInfo fcinfo, Action action) {
    pg::Arguments arguments(fcinfo);
    std::span<pg_uuid_t> ids = read_ids(arguments);
    std::string_view reason = required_reason(arguments, 1);
    bool dry_run = arguments.required_bool(2, "dry_run");
    auto text = [](std::string_view s) { return pg::of(PointerGetDatum(pg::make_text(s))); };
    const int64 spread = PG_NARGS() > 3 ? spread_argument(arguments, 3) : 0;
    pg::ResultSet result(fcinfo);
    const TimestampTz begun = pg::clock_now();
    for (size_t i = 0; i < ids.size(); ++i) {
        CHECK_FOR_INTERRUPTS();
        // Counted from the beginning of the call, so that the last saga is due before the end of
        // the spread however long the call takes.
        const int64 delay = std::max<int64>(
            0, core::spread_delay(spread, static_cast<int64>(i), static_cast<int64>(ids.size())) -
                   (pg::clock_now() - begun));
        const Outcome o =
            operate_guarded(ids[i], {.action = action, .reason = reason, .delay = delay}, dry_run);
        result.add(pg::of(UUIDPGetDatum(&ids[i])),
                   o.done ? text(core::name_of(o.operated.before)) : pg::null(),
                   o.done ? text(core::name_of(o.operated.after)) : pg::null(),
                   o.done ? pg::null() : text(o.sqlstate), o.done ? pg::null() : text(o.error));
    }
    return result.finish();
}

} // namespace

// cancel_sagas(saga_ids uuid[], reason text, dry_run boolean)
//   -> TABLE(saga_id, status_before, status_after, sqlstate, error)
STACKSAGA_FUNCTION(cancel_sagas) {
    return operate_on_many(fcinfo, Action::cancel);
}
// suspend_sagas(saga_ids uuid[], reason text, dry_run boolean) -> as cancel_sagas()
STACKSAGA_FUNCTION(suspend_sagas) {
    return operate_on_many(fcinfo, Action::suspend);
}
// resume_sagas(saga_ids uuid[], reason text, dry_run boolean, spread interval) -> as cancel_sagas()
STACKSAGA_FUNCTION(resume_sagas) {
    return operate_on_many(fcinfo, Action::resume);
}
// retry_sagas(saga_ids uuid[], reason text, dry_run boolean, spread interval) -> as cancel_sagas()
STACKSAGA_FUNCTION(retry_sagas) {
    return operate_on_many(fcinfo, Action::retry);
}
// compensate_sagas(saga_ids uuid[], reason text, dry_run boolean, spread interval)
//   -> as cancel_sagas()
STACKSAGA_FUNCTION(compensate_sagas) {
    return operate_on_many(fcinfo, Action::compensate);
}

} // namespace stacksaga
