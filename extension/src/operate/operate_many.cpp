// cancel_sagas, suspend_sagas, resume_sagas, retry_sagas: actions of operators on many sagas at
// once, as a dry run by default. A query of the view sagas chooses them, with any predicate:
//
//   SELECT * FROM stacksaga.cancel_sagas(ARRAY(SELECT saga_id FROM stacksaga.sagas WHERE ...),
//   'why')
#include "core/saga/saga_state.hpp"
#include "core/work/spread.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/array.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/operate/operate.hpp"

namespace stacksaga {

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
        if (!is_refusal(*error)) // to a caller that may catch it, and knows of no subtransaction
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

} // namespace stacksaga
