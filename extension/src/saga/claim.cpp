// claim_steps: a service takes due queue steps under a lease.
#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/function.hpp"
#include "pg/random.hpp"
#include "pg/result.hpp"
#include "pg/scope.hpp"
#include "src/common/limits.hpp"
#include "src/ring/claimer.hpp"
#include "src/ring/retry_budget.hpp"
#include "src/ring/ring.hpp"
#include "src/saga/claim_search.hpp"
#include "src/saga/saga.hpp"
#include "src/saga/step_call.hpp"
#include "src/saga/step_results.hpp"

namespace stacksaga {

namespace {

constexpr int32 claim_max = 1000;

constinit pg::Statement take{
    "UPDATE stacksaga.work"
    "   SET attempt = $5, lease = $6, lease_until = $7, started_at = $8, due_at = $9, worker = $10,"
    "       deferred = false"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   AND purpose = 'step' AND step_no = $3 AND direction = $4"
    "   AND attempt = $5 - 1 AND lease_until IS NULL"};

// With an empty retry budget one search defers at most so many retries. A call searches at most so
// often for steps behind them, or behind those that other claimers took.
constexpr int32 deferred_max = 100;
constexpr int32 searches_max = 4;
// After a list whose sagas were all locked the next one is longer, up to this.
constexpr int32 wanted_max = 4096;

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
    CRASH_POINT("claim: before the lease");
    uint64 taken =
        take.touch(pg::param(saga_id), pg::param(saga->token), pg::param(step_no),
                   pg::param(core::name_of(direction)), pg::param(attempt), pg::param(lease),
                   pg::param_time(lease_until), pg::param_time(claim.now), pg::param_time(until),
                   pg::param(claim.worker));
    if (taken != 1)
        return Claimed::no;
    CRASH_POINT("claim: lease written");
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
    CRASH_POINT("claim: step returned");
    return Claimed::yes;
}

/// What became of the candidates of one search. Another session had locked what was neither claimed
/// nor deferred.
struct Tried {
    int32 claimed;
    int32 deferred;
    int32 found;
    bool is_cut; ///< there may be more behind these
};

/// One search for claimable steps. It locks their sagas one by one and skips those that another
/// session holds: a claimer never waits.
Tried claim_some(const Claim &claim, const ClaimSearch &search, pg::ResultSet &result) {
    const Candidates candidates = find_candidates(search);
    Tried tried{.claimed = 0,
                .deferred = 0,
                .found = static_cast<int32>(candidates.list.size()),
                .is_cut = candidates.is_cut};
    int32 conflicts = 0;
    for (const Candidate &c : candidates.list) {
        CHECK_FOR_INTERRUPTS();
        if (tried.claimed == claim.max_steps)
            break;
        const Claimed outcome = claim_one(claim, c.saga_id, c.step_no, c.direction, result);
        tried.claimed += outcome == Claimed::yes ? 1 : 0;
        tried.deferred += outcome == Claimed::deferred ? 1 : 0;
        conflicts += outcome == Claimed::no ? 1 : 0;
    }
    note_conflicts(search, conflicts);
    return tried;
}

void claim_steps(Claim &claim, pg::ResultSet &result) {
    Ring ring = current_ring();
    ClaimSearch search{.ring_id = ring.ring_id,
                       .queue = claim.queue,
                       .now = claim.now,
                       .node = {},
                       .owns_retries = false,
                       .skipped = 0,
                       .wanted = claim.max_steps};
    if (const std::optional<Claimer> claimer = find_claimer(ring, claim.worker)) {
        claim.node = claimer->node;
        search.node = claimer->node;
        search.owns_retries = claimer->kind == "worker";
    }
    claim.budget = budget_of_queue(ring.ring_id, claim.queue);
    for (int32 searches = 0; searches < searches_max;) {
        const Tried tried = claim_some(claim, search, result);
        if (tried.claimed > 0 || tried.found == 0)
            break;
        // Searches behind locked sagas do not count, however many there are.
        if (tried.deferred > 0 || !tried.is_cut)
            ++searches;
        search.skipped = tried.is_cut ? search.skipped + tried.found - tried.deferred : 0;
        search.wanted = std::clamp(search.wanted * 4, deferred_max, wanted_max);
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
