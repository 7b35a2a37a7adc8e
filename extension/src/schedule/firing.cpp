#include "src/schedule/firing.hpp"

#include "core/common/retry.hpp"
#include "core/saga/saga_state.hpp"
#include "core/time/schedule_run.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/random.hpp"
#include "pg/statement/attempt.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/counters.hpp"
#include "src/common/limits.hpp"
#include "src/dedupe/fingerprint.hpp"
#include "src/handler/definer.hpp"
#include "src/handler/function_ref.hpp"
#include "src/handler/handler_error.hpp"
#include "src/ring/rings.hpp"
#include "src/ring/token_functions.hpp"
#include "src/saga/saga_tables.hpp"
#include "src/schedule/recurrence.hpp"
#include "src/schedule/schedule.hpp"

namespace stacksaga {

namespace {

constexpr int64 missed_after_us = 60 * USECS_PER_SEC;
constexpr int32 caught_up_max = 1000;
constexpr int32 schedules_per_batch = 32;
constexpr int32 runs_max_of_call = 1000000;
constexpr int32 message_bytes_max = 1000;
// Another session that starts a saga with the key of a run holds up nobody's schedules.
constexpr pg::Setting short_lock_timeout{"lock_timeout", "100ms"};
constexpr core::RetryPolicy pauses{.max_attempts = 0,
                                   .initial_interval_us = USECS_PER_SEC,
                                   .max_interval_us = 300 * USECS_PER_SEC,
                                   .multiplier = 2,
                                   .jitter = 0.2};

enum class DueColumn : uint8_t {
    schedule,
    token,
    saga,
    cron,
    timezone,
    input,
    catch_up,
    overlap,
    next_run,
    last_saga_id,
    failures,
    skipped,
    skipped_since,
    definer,
    definer_oid,
};
constinit pg::Select<DueColumn> lock_due{
    "SELECT schedule, token::bigint, saga, cron, timezone, input, catch_up, overlap, next_run,"
    "       last_saga_id, failures, skipped, skipped_since, definer::text, definer_oid"
    "  FROM stacksaga.schedule WHERE ring_id = $1 AND due_at <= $2"
    " ORDER BY due_at LIMIT $3 FOR NO KEY UPDATE SKIP LOCKED"};
constinit pg::Statement find_next_due{
    "SELECT s.due_at FROM unnest($1) AS r(ring_id), LATERAL ("
    "       SELECT due_at FROM stacksaga.schedule s WHERE s.ring_id = r.ring_id"
    "        ORDER BY due_at LIMIT 1) AS s"};
constinit pg::Statement start_run{
    "SELECT saga_id FROM stacksaga.start_saga(saga => $1, key => $2,"
    "       input => $3 || pg_catalog.jsonb_build_object('scheduled_at', $4::text))"};
enum class SagaColumn : uint8_t { status, run, latest_run, key };
constinit pg::Select<SagaColumn> find_saga{
    "SELECT status, run, latest_run, key FROM stacksaga.saga"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};
constinit pg::Statement write_progress{
    "UPDATE stacksaga.schedule"
    "   SET next_run = $3, due_at = $4, last_run = coalesce($5, last_run),"
    "       last_saga_id = coalesce($6, last_saga_id), failures = $7, last_error = $8,"
    "       failed_since = CASE WHEN $7 > 0 THEN coalesce(failed_since, $9) END,"
    "       skipped = $10, skipped_since = $11"
    " WHERE schedule = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

/// A due schedule, locked, and what becomes of it.
struct DueSchedule {
    std::string_view name;
    int64 token;
    std::string_view saga;
    std::string_view cron;
    std::string_view zone;
    Datum input;
    CatchUp catch_up;
    Overlap overlap;
    TimestampTz next_run;
    std::optional<pg_uuid_t> last_saga_id;
    int32 failures;
    int64 skipped; ///< runs in a row, since the last one that started
    std::optional<TimestampTz> skipped_since;
    Definer definer;

    std::optional<TimestampTz> last_run{}; ///< of those that are settled now
    const char *error = nullptr;
    int sqlstate = 0; ///< of the error
};
static_assert(std::is_trivially_destructible_v<DueSchedule>);

DueSchedule read_due(const pg::RowsOf<DueColumn> &rows, uint64 i) {
    using Column = DueColumn;
    return {.name = rows.text(i, Column::schedule),
            .token = rows.int8(i, Column::token),
            .saga = rows.text(i, Column::saga),
            .cron = rows.text(i, Column::cron),
            .zone = rows.text(i, Column::timezone),
            .input = rows.value(i, Column::input),
            .catch_up = *core::enum_of<CatchUp>(catch_up_names, rows.text(i, Column::catch_up)),
            .overlap = *core::enum_of<Overlap>(overlap_names, rows.text(i, Column::overlap)),
            .next_run = rows.time(i, Column::next_run),
            .last_saga_id = rows.is_null(i, Column::last_saga_id)
                                ? std::nullopt
                                : std::optional{rows.uuid(i, Column::last_saga_id)},
            .failures = rows.int4(i, Column::failures),
            .skipped = rows.int8(i, Column::skipped),
            .skipped_since = rows.optional_time(i, Column::skipped_since),
            .definer = read_definer(rows, i)};
}

/// The instant as it stands in a run's key and input: 2026-03-29T01:00:00Z.
const char *instant_text(TimestampTz instant) {
    struct pg_tm tm;
    fsec_t fraction;
    if (timestamp2tm(instant, nullptr, &tm, &fraction, nullptr, nullptr) != 0)
        elog(ERROR, "timestamp out of range");
    return psprintf("%04d-%02d-%02dT%02d:%02d:%02dZ", tm.tm_year, tm.tm_mon, tm.tm_mday, tm.tm_hour,
                    tm.tm_min, tm.tm_sec);
}

/// The first run to settle, given that next_run is past: what catch_up drops is passed over.
TimestampTz first_run(const DueSchedule &s, const Recurrence &recurrence, TimestampTz now) {
    const TimestampTz missed_until = now - missed_after_us;
    if (s.next_run > missed_until)
        return s.next_run;
    switch (s.catch_up) {
    case CatchUp::skip:
        return recurrence.next(missed_until);
    case CatchUp::last:
        return earliest_of_latest(recurrence, s.next_run, missed_until, 1);
    case CatchUp::all:
        return earliest_of_latest(recurrence, s.next_run, missed_until, caught_up_max);
    }
    pg_unreachable();
}

pg::RowsOf<SagaColumn> find(const pg_uuid_t &id) {
    return find_saga.run(pg::param(id), pg::param(token_of_uuid(id).value()));
}

/// Whether the last run of the schedule has not ended; it may have failed and been started again,
/// and its key stands for the latest of these sagas.
bool is_running(const DueSchedule &s) {
    if (!s.last_saga_id)
        return false;
    const auto is_final = [](const pg::RowsOf<SagaColumn> &found) {
        return core::is_final(*core::status_of(found.text(0, SagaColumn::status)));
    };
    auto saga = find(*s.last_saga_id);
    if (saga.empty() || saga.is_null(0, SagaColumn::key))
        return !saga.empty() && !is_final(saga);
    const std::string_view key = copy_view(saga.text(0, SagaColumn::key));
    const int32 run = saga.int4(0, SagaColumn::run);
    if (run > 0) // the first one knows which is the latest
        saga = find(keyed_saga_id(s.saga, key, 0));
    const int32 latest = saga.empty() ? run : saga.int4(0, SagaColumn::latest_run);
    if (latest != run || saga.empty())
        saga = find(keyed_saga_id(s.saga, key, latest));
    return !saga.empty() && !is_final(saga);
}

/// The run's identity: the key of its saga.
const char *key_of(const DueSchedule &s, TimestampTz run) {
    return psprintf("%.*s@%s", static_cast<int>(s.name.size()), s.name.data(), instant_text(run));
}

/// Starts the saga of the run, or finds the one that has been started for it, with the definer's
/// rights.
pg_uuid_t start(const DueSchedule &s, TimestampTz run) {
    if (const char *objection = objection_to(s.definer))
        ereport(ERROR, (errcode(pg::sg403),
                        errmsg("role \"%s\" cannot start sagas: %s", s.definer.name, objection)));
    const char *at = instant_text(run);
    const char *key = key_of(s, run);
    return pg::as_role(s.definer.oid, [&] {
        return start_run
            .run(pg::param(s.saga), pg::param(std::string_view{key}),
                 pg::param_datum(JSONBOID, s.input), pg::param(std::string_view{at}))
            .uuid(0);
    });
}

/// Runs `body` in a subtransaction; false when it failed. Its error is the schedule's, unless it is
/// a cancel, which is meant for the session.
template <class F> bool attempt(DueSchedule &s, F &&body) {
    return pg::attempt_expecting(
        [&](const ErrorData &error) {
            if (error.sqlerrcode == ERRCODE_QUERY_CANCELED)
                return false;
            const int length = pg_mbcliplen(error.message, static_cast<int>(strlen(error.message)),
                                            message_bytes_max);
            s.error =
                psprintf("%s: %.*s", unpack_sql_state(error.sqlerrcode), length, error.message);
            s.sqlstate = error.sqlerrcode;
            return true;
        },
        [&] {
            pg::with_settings({&short_lock_timeout, 1}, body);
        });
}

enum class Settling : uint8 { done, failed, waits };

/// Settles one run. One that was missed and is to be caught up waits for the last one to end.
Settling settle(DueSchedule &s, TimestampTz run, TimestampTz now) {
    const bool is_in_the_way = s.overlap == Overlap::skip && is_running(s);
    switch (core::decide_run(s.catch_up, s.overlap, is_in_the_way, run <= now - missed_after_us)) {
    case core::RunDecision::waits:
        return Settling::waits;
    case core::RunDecision::skip:
        count_event(Counter::schedule_runs_skipped);
        ++s.skipped;
        s.skipped_since = s.skipped_since.value_or(run);
        return Settling::done;
    case core::RunDecision::start:
        break;
    }
    if (attempt(s, [&] { s.last_saga_id = start(s, run); })) {
        count_event(Counter::schedule_runs_started);
    } else if (s.sqlstate == pg::sg422) {
        // Before the clock was set back, an earlier schedule of this name has started the run with
        // another input.
        s.error = nullptr;
        s.last_saga_id = keyed_saga_id(s.saga, key_of(s, run), 0);
    } else {
        return Settling::failed;
    }
    s.last_run = run;
    s.skipped = 0;
    s.skipped_since = std::nullopt;
    CRASH_POINT("schedule: saga started, next run not written");
    return Settling::done;
}

void note_failure(const DueSchedule &s) {
    count_event(Counter::schedule_runs_failed);
    if (s.failures == 0)
        ereport(LOG, (errmsg("schedule \"%s\" cannot start its saga: %s", clip(s.name), s.error),
                      errhint("It is tried again until it succeeds; doctor() shows it.")));
}

/// Settles up to `runs_max` runs that are due and writes how far it came. Returns their number.
int32 fire(DueSchedule &s, TimestampTz now, int32 runs_max) {
    std::optional<Recurrence> recurrence;
    int32 settled = 0;
    bool waits = false;
    if (attempt(s, [&] {
            recurrence = read_recurrence(s.cron, s.zone);
            s.next_run = first_run(s, *recurrence, now);
        }))
        for (; s.next_run <= now && settled < runs_max; ++settled) {
            CHECK_FOR_INTERRUPTS();
            const Settling settling = settle(s, s.next_run, now);
            waits = settling == Settling::waits;
            if (settling != Settling::done)
                break;
            s.next_run = recurrence->next(s.next_run);
        }
    const int32 failures = s.error == nullptr ? 0 : s.failures + 1;
    const int64 pause = core::delay_before(failures + 1, pauses, pg::random_fraction());
    write_progress.run(
        pg::param(s.name), pg::param(s.token), pg::param_time(s.next_run),
        // One that waits is looked at again behind the others that are due.
        pg::param_time(failures > 0 ? pg::time_plus(now, pause)
                       : waits      ? now
                                    : s.next_run),
        pg::param_time(s.last_run),
        s.last_saga_id ? pg::param(*s.last_saga_id) : pg::param_null(UUIDOID), pg::param(failures),
        s.error != nullptr ? pg::param(std::string_view{s.error}) : pg::param_null(TEXTOID),
        pg::param_time(now), pg::param(s.skipped), pg::param_time(s.skipped_since));
    CRASH_POINT("schedule: next run written");
    if (failures > 0)
        note_failure(s);
    return settled;
}

} // namespace

Firing fire_due_schedules(int32 ring_id, int32 runs_max) {
    const TimestampTz now = pg::clock_now();
    Firing result{};
    for (const int32 ring : served_rings(ring_id)) {
        const auto room = static_cast<int32>(runs_max - result.settled);
        const int32 wanted = std::min(schedules_per_batch, room);
        const auto rows = lock_due.run(pg::param(ring), pg::param_time(now), pg::param(wanted));
        const int64 before = result.settled + result.failures;
        for (uint64 i = 0; i < rows.count() && result.settled < runs_max; ++i) {
            DueSchedule s = read_due(rows, i);
            result.settled += fire(s, now, static_cast<int32>(runs_max - result.settled));
            result.failures += s.error != nullptr ? 1 : 0;
        }
        // Where all of them wait, the same ones would be found again at once.
        const bool has_changed = result.settled + result.failures > before;
        result.more = result.more || (has_changed && rows.count() == static_cast<uint64>(wanted));
    }
    result.more = result.more || result.settled >= runs_max;
    return result;
}

TimestampTz next_schedule_due(int32 ring_id) {
    pg::Rows rows = find_next_due.run(pg::param_array(served_rings(ring_id)));
    TimestampTz due = DT_NOEND;
    for (uint64 i = 0; i < rows.count(); ++i)
        due = std::min(due, rows.time(i));
    return due;
}

// fire_schedules(max_runs) -> bigint
STACKSAGA_FUNCTION(fire_schedules) {
    const int32 limit = pg::Arguments(fcinfo).required_int4(0, "max_runs");
    if (limit < 1 || limit > runs_max_of_call)
        ereport(ERROR,
                (errcode(pg::sg400), errmsg("argument \"max_runs\" is out of range"),
                 errdetail("The value is %d.", limit), errhint("Use 1 to %d.", runs_max_of_call)));
    refuse_inside_handler("fire_schedules()");
    int64 settled = 0;
    for (Firing fired{.settled = 0, .failures = 0, .more = true}; fired.more && settled < limit;
         settled += fired.settled)
        fired = pg::with_spi([&] {
            return fire_due_schedules(current_ring().ring_id, static_cast<int32>(limit - settled));
        });
    PG_RETURN_INT64(settled);
}

} // namespace stacksaga
