// claim_steps: a service takes due queue steps under a lease.
#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/function.hpp"
#include "pg/random.hpp"
#include "pg/result.hpp"
#include "pg/scope.hpp"
#include "src/common/limits.hpp"
#include "src/common/probe.hpp"
#include "src/ring/claimer.hpp"
#include "src/ring/retry_budget.hpp"
#include "src/ring/ring.hpp"
#include "src/saga/saga.hpp"
#include "src/saga/step_call.hpp"

namespace stacksaga {

namespace {

constexpr int32 claim_max = 1000;

// A registered worker node gets retries only from the slots that it owns, a standard node first
// attempts only. The sagas are locked here, and those that another session holds are skipped: so
// claimers never wait for anybody, and each gets work while there is some. The work rows are hints
// until they are read again under the lock.
constinit pg::Statement find_candidates{
    "SELECT w.saga_id, w.step_no, w.direction"
    "  FROM stacksaga.work w JOIN stacksaga.saga s"
    "    ON s.saga_id = w.saga_id AND s.token OPERATOR(stacksaga.=) w.token"
    " WHERE w.ring_id = $1 AND w.queue = $2 AND NOT w.verifying AND w.due_at <= $3"
    "   AND w.due_at >= $7"
    "   AND s.status <> 'suspended'"
    "   AND ($5 IS NULL OR w.attempt = 0 OR ($5 = 'worker' AND EXISTS ("
    "          SELECT FROM stacksaga.slot o"
    "           WHERE o.ring_id = w.ring_id AND o.slot = w.slot AND o.owner = $6)))"
    " ORDER BY w.due_at LIMIT $4 FOR NO KEY UPDATE OF s SKIP LOCKED"};
constinit pg::Statement take{
    "UPDATE stacksaga.work"
    "   SET attempt = $5, lease = $6, lease_until = $7, started_at = $8, due_at = $9, worker = $10,"
    "       deferred = false"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND step_no = $3 AND direction = $4 AND attempt = $5 - 1 AND lease_until IS NULL"};

// Where the retry budget is empty, so many retries are deferred in one look for claimable steps. So
// often it is looked again for what is behind them, or beside what others took meanwhile.
constexpr int32 deferred_max = 100;
constexpr int32 looks_max = 4;

struct Claim {
    std::string_view queue;
    std::string_view worker;
    int32 max_steps;
    int64 lease_us;
    TimestampTz now;
    uint64 budget;
    std::optional<NodeIdentity> node; ///< a registered claimer has its part of the budget
};

enum class Claimed : uint8_t { yes, no, deferred };

void add_claimed(pg::ResultSet &result, const StepCall &call, int64 lease, TimestampTz until) {
    constexpr int columns = step_call_columns + 2;
    Datum values[columns];
    bool nulls[columns] = {};
    fill_step_call(call, values, nulls);
    values[step_call_columns] = Int64GetDatum(lease);
    values[step_call_columns + 1] = TimestampTzGetDatum(until);
    result.add_row(values, nulls);
}

/// Whether the step may be claimed now; a lease that ran out is settled first, and may have made a
/// fallback due, on another queue.
std::optional<Work> claimable(const Claim &claim, Saga &saga, const Step &step,
                              core::Direction direction) {
    std::optional<Work> work = find_work(saga, step.no, direction);
    if (work && work->is_claimed() && work->due_at <= saga.now) {
        lease_expired(saga, step, *work);
        work = find_work(saga, step.no, direction);
    }
    bool free = work && !work->is_claimed() && !work->verifying && work->due_at <= saga.now &&
                queue_of(step, work->falling_back) == claim.queue &&
                saga.status != core::Status::suspended;
    return free && !deadline_passed(saga) ? work : std::nullopt;
}

/// Whether the step may not be tried again yet; then it is due later.
bool is_deferred(const Claim &claim, const Saga &saga, const Work &work) {
    if (work.attempt == work.attempt_base) {
        count_first_attempt(claim.budget);
        return false;
    }
    const std::optional<int64> delay =
        defer_retry(claim.budget, claim.node ? fraction_of(*claim.node) : 1);
    return delay && postpone_retry(saga.id, work.step_no, work.direction, *delay);
}

Claimed claim_one(const Claim &claim, const pg_uuid_t &saga_id, int16 step_no,
                  core::Direction direction, pg::ResultSet &result) {
    std::optional<Saga> saga = lock_saga(saga_id, claim.now, true);
    if (!saga)
        return Claimed::no;
    const Step &step = saga->definition->step(step_no);
    std::optional<Work> work = claimable(claim, *saga, step, direction);
    if (!work)
        return Claimed::no;
    if (is_deferred(claim, *saga, *work))
        return Claimed::deferred;

    int32 attempt = work->attempt + 1;
    int64 lease = core::make_lease(attempt, direction, pg::random_bits());
    TimestampTz timeout = pg::time_plus(claim.now, step.timeout_us);
    TimestampTz lease_until = pg::time_plus(claim.now, claim.lease_us);
    TimestampTz until = std::min(lease_until, timeout);
    uint64 taken =
        take.touch(pg::param(saga_id), pg::param(saga->token), pg::param(step_no),
                   pg::param(core::name_of(direction)), pg::param(attempt), pg::param(lease),
                   pg::param_time(lease_until), pg::param_time(claim.now), pg::param_time(until),
                   pg::param(claim.worker));
    if (taken != 1)
        return Claimed::no;
    attempt_begins(*saga);
    StepCall call{.saga_id = saga_id,
                  .saga = saga->definition->saga,
                  .step = &step,
                  .direction = direction,
                  .attempt = attempt,
                  .input = saga->input,
                  .results = step_results(*saga, step, direction),
                  .headers = saga->headers,
                  .deadline = attempt_deadline(*saga, step, direction)};
    add_claimed(result, call, lease, until);
    return Claimed::yes;
}

/// What this session remembers of the queues that it claims from; a queue that falls on the place
/// of another one takes it.
ProbeMemory &memory_of(int32 ring_id, std::string_view queue) {
    struct Place {
        uint64 key = 0;
        ProbeMemory memory{};
    };
    static constinit std::array<Place, 16> places{};
    uint64 key = core::murmur3_x64_128(queue, static_cast<uint32>(ring_id)).h1;
    Place &place = places[key % places.size()];
    if (place.key != key)
        place = Place{.key = key};
    return place.memory;
}

/// What one look came to. What was found and neither claimed nor deferred, another claimer took
/// between the look and the lock.
struct Look {
    int32 claimed;
    int32 deferred;
    uint64 found;
};

/// One look for claimable steps, at most `limit`.
Look claim_some(const Claim &claim, const Ring &ring, const pg::Param &kind, int32 limit,
                pg::ResultSet &result) {
    // A node that may not have everything leaves work behind that is due: no memory for it.
    ProbeMemory everything{};
    ProbeMemory &memory = claim.node ? everything : memory_of(ring.ring_id, claim.queue);
    TimestampTz from = memory.begin(claim.now);
    pg::Rows rows = find_candidates.run(pg::param(ring.ring_id), pg::param(claim.queue),
                                        pg::param_time(claim.now), pg::param(limit), kind,
                                        claim.node ? pg::param(claim.node->incarnation)
                                                   : pg::param_null(INT8OID),
                                        pg::param_time(from));
    memory.end(claim.now);
    memory.settle(claim.now, rows.count() < static_cast<uint64>(limit));
    int32 claimed = 0, deferred = 0;
    for (uint64 i = 0; i < rows.count() && claimed < claim.max_steps; ++i) {
        CHECK_FOR_INTERRUPTS();
        const Claimed outcome = claim_one(claim, rows.uuid(i, 0), rows.int2(i, 1),
                                          *core::direction_of(rows.text(i, 2)), result);
        claimed += outcome == Claimed::yes ? 1 : 0;
        deferred += outcome == Claimed::deferred ? 1 : 0;
    }
    return {.claimed = claimed, .deferred = deferred, .found = rows.count()};
}

void claim_steps(Claim &claim, pg::ResultSet &result) {
    Ring ring = current_ring();
    pg::Param kind = pg::param_null(TEXTOID);
    if (const std::optional<Claimer> claimer = find_claimer(ring, claim.worker)) {
        kind = pg::param(claimer->kind);
        claim.node = claimer->node;
    }
    claim.budget = budget_of_queue(ring.ring_id, claim.queue);
    int32 limit = claim.max_steps;
    for (int32 looks = 0; looks < looks_max; ++looks) {
        const Look look = claim_some(claim, ring, kind, limit, result);
        if (look.claimed > 0 || look.found == 0)
            break;
        if (look.deferred > 0) // there may be something behind them
            limit = std::max(claim.max_steps, deferred_max);
    }
}

} // namespace

// claim_steps(queue, worker, max_steps, lease) -> SETOF claimed_step
STACKSAGA_FUNCTION(claim_steps) {
    pg::Arguments arguments(fcinfo);
    Claim claim{};
    claim.now = pg::clock_now();
    claim.queue = arguments.required_text(0, "queue");
    check_name(claim.queue, "queue", queue_bytes_max);
    claim.worker = arguments.required_text(1, "worker");
    check_name(claim.worker, "worker");
    claim.max_steps = arguments.required_int4(2, "max_steps");
    if (claim.max_steps < 1 || claim.max_steps > claim_max)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"max_steps\" is out of range"),
                        errdetail("The value is %d.", claim.max_steps),
                        errhint("Use 1 to %d.", claim_max)));
    arguments.require(3, "lease");
    claim.lease_us = pg::interval_microseconds(arguments.datum(3), "lease", true);
    pg::ResultSet result(fcinfo);
    pg::with_spi([&] { claim_steps(claim, result); });
    return result.finish();
}

} // namespace stacksaga
