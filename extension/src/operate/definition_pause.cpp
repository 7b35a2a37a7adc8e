// pause_definition, resume_definition: operators stop the attempts of a saga's definition, in all
// of its versions and in all rings.
#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/common/wake.hpp"
#include "src/definition/definition_pauses.hpp"
#include "src/definition/stored_definition.hpp"
#include "src/queue/queue_waiters.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement begin_pause{
    "INSERT INTO stacksaga.definition_pause AS p (saga, paused_at, paused_until, pause_reason)"
    " VALUES ($1, $2, $3, $4)"
    " ON CONFLICT (saga) DO UPDATE SET paused_at = $2, paused_until = $3, pause_reason = $4"
    "  WHERE p.paused_until <= $2 RETURNING 1"};
// The row stays until what was held back has been brought back.
constinit pg::Statement end_pause{"UPDATE stacksaga.definition_pause SET paused_until = $2"
                                  " WHERE saga = $1 AND coalesce(paused_until > $2, true)"
                                  " RETURNING 1"};
enum class QueueColumn : uint8_t { ring_id, queue };
constinit pg::Select<QueueColumn> select_queues{
    "SELECT DISTINCT r.ring_id, n.queue"
    "  FROM stacksaga.saga_definition d JOIN stacksaga.definition_step s USING (definition_id)"
    " CROSS JOIN LATERAL (VALUES (s.queue),"
    "       (CASE WHEN s.kind NOT IN ('sql', 'message') THEN s.fallback END)) AS n(queue)"
    " CROSS JOIN stacksaga.ring r WHERE d.saga = $1 AND n.queue IS NOT NULL",
    pg::Plans::by_statistics};

[[noreturn]] void raise_not(std::string_view saga, bool is_paused) {
    ereport(ERROR, (errcode(pg::sg409),
                    errmsg(is_paused ? "definition \"%s\" is paused already"
                                     : "definition \"%s\" is not paused",
                           clip(saga)),
                    errdetail(is_paused ? "It stays paused." : "It is unchanged."),
                    errhint("The view stacksaga.definitions shows which definitions are paused.")));
    pg_unreachable();
}

/// Services that wait for queues with steps of the saga look again, and workers do.
void wake_all(std::string_view saga) {
    const auto rows = select_queues.run(pg::param(saga));
    for (uint64 i = 0; i < rows.count(); ++i)
        wake_waiters_at_commit(rows.int4(i, QueueColumn::ring_id),
                               rows.text(i, QueueColumn::queue));
    wake_workers_at_commit();
}

void change(std::string_view saga, const OperatorAction &action) {
    announce_pauses();
    wake_all(saga);
    record_action(action);
}

} // namespace

// pause_definition(saga, reason, until) -> void
STACKSAGA_FUNCTION(pause_definition) {
    pg::Arguments arguments(fcinfo);
    const std::string_view saga = arguments.required_text(0, "saga");
    check_name(saga, "saga");
    const std::string_view reason = required_reason(arguments, 1);
    const std::optional<TimestampTz> until = optional_until(arguments, 2);
    pg::with_spi([&] {
        (void)find_definition(saga, std::nullopt);
        if (begin_pause.touch(pg::param(saga), pg::param_time(pg::clock_now()),
                              pg::param_time(until), pg::param(reason)) == 0)
            raise_not(saga, true);
        change(saga, {.action = "pause",
                      .object = object_text("definition", saga),
                      .reason = reason,
                      .detail = until_text(until)});
    });
    PG_RETURN_VOID();
}

// resume_definition(saga, reason) -> void
STACKSAGA_FUNCTION(resume_definition) {
    pg::Arguments arguments(fcinfo);
    const std::string_view saga = arguments.required_text(0, "saga");
    check_name(saga, "saga");
    const std::string_view reason = required_reason(arguments, 1);
    pg::with_spi([&] {
        (void)find_definition(saga, std::nullopt);
        if (end_pause.touch(pg::param(saga), pg::param_time(pg::clock_now())) == 0)
            raise_not(saga, false);
        change(saga,
               {.action = "resume", .object = object_text("definition", saga), .reason = reason});
    });
    PG_RETURN_VOID();
}

} // namespace stacksaga
