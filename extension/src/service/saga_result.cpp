// The outcome of a saga: saga_result and await_saga.
#include "core/ring/token.hpp"
#include "core/saga/saga_state.hpp"
#include "core/time/length.hpp"

#include "pg/client.hpp"
#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/saga/start.hpp"

namespace stacksaga {

namespace {

constexpr int64 look_again_min_ms = 2, look_again_max_ms = 100;

enum class ResultColumn : uint8_t { status, output, error, failed_step, finished_at };
constinit pg::Select<ResultColumn> select_result{
    "SELECT s.status,"
    "       (SELECT coalesce(jsonb_object_agg(d.step, e.output), '{}')"
    "          FROM stacksaga.effect e JOIN stacksaga.definition_step d"
    "            ON d.definition_id = s.definition_id AND d.step_no = e.step_no"
    "         WHERE e.saga_id = s.saga_id AND e.token OPERATOR(stacksaga.=) s.token"
    "           AND e.direction = 'act') AS output,"
    "       s.error,"
    "       (SELECT d.step FROM stacksaga.definition_step d"
    "         WHERE d.definition_id = s.definition_id AND d.step_no = s.failed_step) AS failed_step,"
    "       s.finished_at"
    "  FROM stacksaga.saga s"
    " WHERE s.saga_id = $1 AND s.token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};
// A removed saga whose key is kept: the row says how the saga ended.
constinit pg::Select<ResultColumn> select_removed{
    "SELECT status, NULL::jsonb AS output, NULL::text AS error, NULL::text AS failed_step,"
    "       finished_at"
    "  FROM stacksaga.removed_saga"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND kept_since > $3"};
enum class StatusColumn : uint8_t { status, xmin };
constinit pg::Select<StatusColumn> select_status{
    "SELECT status, xmin FROM stacksaga.saga"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

pg::Param token_param(const pg_uuid_t &id) {
    return pg::param(core::token_of_uuid(id.data).value());
}

/// The committed status; SR425 for a saga that only this transaction sees.
core::Status committed_status(const pg_uuid_t &id) {
    const auto rows = select_status.run(pg::param(id), token_param(id));
    if (rows.empty())
        raise_unknown_saga(id);
    TransactionId writer = DatumGetTransactionId(rows.value(0, StatusColumn::xmin));
    if (TransactionIdIsCurrentTransactionId(writer)) // or one of its subtransactions
        ereport(ERROR, (errcode(pg::sr425), errmsg("saga %s is not committed yet", uuid_text(id)),
                        errdetail("No worker can see it before this transaction commits."),
                        errhint("Commit after start_saga(), then await the saga.")));
    return *core::status_of(rows.text(0, StatusColumn::status));
}

} // namespace

// saga_result(saga_id) -> TABLE(status, output, error, failed_step, finished_at)
STACKSAGA_FUNCTION(saga_result) {
    pg_uuid_t id = pg::Arguments(fcinfo).required_uuid(0, "saga_id");
    pg::ResultSet result(fcinfo);
    pg::with_spi([&] {
        auto rows = select_result.read(pg::param(id), token_param(id));
        if (rows.empty())
            rows = select_removed.read(pg::param(id), token_param(id),
                                       pg::param_time(forgotten_until(pg::clock_now())));
        if (rows.empty())
            raise_unknown_saga(id);
        const auto column = [&](ResultColumn c) { return pg::of(rows.nullable(0, c)); };
        using enum ResultColumn;
        result.add(column(status), column(output), column(error), column(failed_step),
                   column(finished_at));
    });
    return result.finish();
}

// await_saga(saga_id, timeout) -> text. Waits on the process latch, with pauses that grow from
// 2 to 100 ms, until the saga is completed, failed or parked. Time here is the real one: the
// clock of tests may stand still.
STACKSAGA_FUNCTION(await_saga) {
    pg::Arguments arguments(fcinfo);
    pg_uuid_t id = arguments.required_uuid(0, "saga_id");
    arguments.require(1, "timeout");
    const int64 timeout_us = core::microseconds_from(
        pg::clock_now(), pg::interval_length(arguments.datum(1), "timeout", false));
    const int64 started_at = pg::steady_now();
    int64 pause_ms = look_again_min_ms;
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        pg::check_client();
        core::Status status = pg::with_spi([&] { return committed_status(id); });
        const int64 left_ms = (timeout_us - (pg::steady_now() - started_at)) / 1000;
        if (core::is_at_rest(status) || left_ms <= 0)
            PG_RETURN_TEXT_P(pg::make_text(core::name_of(status)));
        (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
                        static_cast<long>(std::min(pause_ms, left_ms)), PG_WAIT_EXTENSION);
        ResetLatch(MyLatch);
        pause_ms = std::min(pause_ms * 2, look_again_max_ms);
    }
}

} // namespace stacksaga
