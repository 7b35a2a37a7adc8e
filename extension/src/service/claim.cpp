// claim_steps: a service takes due queue steps under a lease.
#include "core/saga/saga.hpp"
#include "core/saga/saga_answers.hpp"
#include "core/saga/saga_engine.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/work_purpose.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/random.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/common/sent_values.hpp"
#include "src/handler/process_retry_budget.hpp"
#include "src/handler/running_handler.hpp"
#include "src/queue/queue_limits.hpp"
#include "src/queue/queue_waiters.hpp"
#include "src/ring/rings.hpp"
#include "src/saga/child.hpp"
#include "src/saga/held_back.hpp"
#include "src/saga/postpone.hpp"
#include "src/saga/saga_tables.hpp"
#include "src/saga/step_call.hpp"
#include "src/saga/store.hpp"
#include "src/service/claimer.hpp"
#include "src/work/claim_search.hpp"
#include "src/work/work_table.hpp"

namespace stacksaga {

namespace {

constexpr int32 claim_max = 1000;

// The most retries that one search defers while the retry budget is empty, and the most searches of
// a call for steps behind these retries, or behind steps that other claimers took.
constexpr int32 deferred_max = 100;
constexpr int32 searches_max = 4;
// The number of searches at another place inside the queue, where a search found only locked steps.
constexpr int32 inside_max = 2;
// After a list whose sagas were all locked the next one is longer, up to this length.
constexpr int32 wanted_max = 4096;
// The most leases that ran out that a call settles. Workers settle them as well.
constexpr size_t expired_max = 100;

// A call that has held back this number of steps searches no more: workers hold back the rest.
constexpr int32 held_back_max = 100;
// The most steps that a call brings back whose pause is over. Workers bring them back as well.
constexpr int32 brought_back_max = 100;

struct Claim {
    std::string_view queue;
    std::string_view worker;
    int32 max_steps;
    int64 lease_us;
    TimestampTz now;
    uint64 budget;
    std::optional<NodeIdentity> node; ///< a registered claimer has its part of the budget
    int32 ring_id;
    QueueLimits limits;
    bool is_guarded = false; ///< each step in a subtransaction: one of them cannot be handed out
    BatchBytes bytes{};      ///< of the steps that were claimed
};

/// What a service gets of a saga.
struct Given {
    SentValue input, results, headers;
};

enum class Claimed : uint8_t { yes, no, deferred, held_back };

/// The tables that a claim reads and then writes.
constexpr std::array written_tables{&saga_table, &work_table};

void add_claimed(pg::ResultSet &result, const StepCall &call, int64 lease, TimestampTz until) {
    constexpr int own_columns = 2;
    Datum values[step_call_columns + own_columns];
    bool nulls[step_call_columns + own_columns];
    fill_step_call(call, values, nulls, own_columns);
    values[columns_before_claim] = Int64GetDatum(lease);
    values[columns_before_claim + 1] = TimestampTzGetDatum(until);
    result.add_row(values, nulls);
}

/// Whether the retry budget defers the step; then it becomes due later.
bool is_deferred(const Claim &claim, Saga &saga, const Work &work) {
    if (work.releases > 0) // its claim before the release was counted
        return false;
    if (work.attempt == work.attempt_base) {
        count_first_attempt(claim.budget);
        return false;
    }
    const std::optional<int64> delay =
        defer_retry(claim.budget, claim.node ? fraction_of(*claim.node) : 1);
    if (delay)
        core::defer_work(saga, work, pg::time_plus(pg::clock_now(), *delay));
    return delay.has_value();
}

/// Gives the step to the claimer, and returns its call.
Given claim_step(const Claim &claim, Saga &saga, const Step &step, const Work &work,
                 pg::ResultSet &result) {
    const int64 lease = core::make_lease(work.attempt + 1, work.direction, pg::random_bits());
    const Work attempt = core::begin_claim(saga, step, work, lease,
                                           pg::time_plus(claim.now, claim.lease_us), claim.worker);
    CRASH_POINT("claim: before the lease");
    write_saga(saga);
    CRASH_POINT("claim: lease written");
    SentText text;
    const Given given{.input = text.add(saga.input),
                      .results = text.add(step_results(saga)),
                      .headers = text.add(saga.headers)};
    const StepCall call{.saga_id = saga.id,
                        .saga = saga.definition->saga,
                        .step = &step,
                        .direction = attempt.direction,
                        .attempt = attempt.attempt,
                        .input = given.input.value,
                        .results = given.results.value,
                        .headers = given.headers.value,
                        .deadline = core::attempt_deadline(saga, step, attempt.direction),
                        .by_fallback = attempt.falling_back,
                        .claimed_at = std::nullopt};
    add_claimed(result, call, lease, attempt.due_at);
    CRASH_POINT("claim: step returned");
    return given;
}

/// Whether the limit of its group lets one more run. A search has checked the limit once for each
/// rank.
bool has_room(const Claim &claim, const FoundItem &candidate) {
    if (!claim.limits.max_running_per_group || candidate.group.empty())
        return true;
    const int32 limit = *claim.limits.max_running_per_group;
    return count_leased(claim.ring_id, claim.queue, candidate.group, limit) < limit;
}

/// Delays a due step that a suspended ancestor holds back, so that not each claim finds it again.
void defer_under_ancestors(Saga &saga, const FoundItem &candidate) {
    const std::optional<Work> work =
        core::find_work(saga, candidate.item.step_no, candidate.item.direction);
    if (work && saga.ancestry.is_suspended && !work->is_claimed() && work->due_at <= saga.now)
        core::defer_for_ancestors(saga, *work, pg::time_plus(saga.now, ancestors_pause_us));
}

Claimed claim_one(const Claim &claim, const FoundItem &candidate, Given &given,
                  pg::ResultSet &result) {
    // The search read the candidate without a lock, so it is a hint. The rows read under the lock
    // decide: another session may have claimed, settled or delayed the step since.
    Saga *saga = lock_saga(candidate.item.saga_id, claim.now, true);
    if (saga == nullptr)
        return Claimed::no;
    heed_ancestors(*saga);
    const Step &step = saga->definition->step(candidate.item.step_no);
    const std::optional<Work> work = core::find_claimable(*saga, step, candidate.item.direction,
                                                          claim.queue, pg::random_fraction());
    if (!work)
        defer_under_ancestors(*saga, candidate);
    const bool is_held_back = !work && saga->is_paused;
    if (is_held_back)
        core::arrange_work(*saga);
    if (!work || is_deferred(claim, *saga, *work)) {
        write_saga(*saga); // a lease or a deadline may have been settled
        return is_held_back ? Claimed::held_back : work ? Claimed::deferred : Claimed::no;
    }
    given = claim_step(claim, *saga, step, *work, result);
    return Claimed::yes;
}

/// Runs `body`, which reads the candidate and may claim it. Where steps are guarded, one that
/// cannot be handed out is settled and passed over; else its error ends the try.
template <class F> void with_item(const Claim &claim, const FoundItem &candidate, F &&body) {
    // The refusal of a handler's own saga is the caller's error, not the step's.
    if (!claim.is_guarded || running_handler.is_of_step_of(candidate.item.saga_id))
        return body();
    HandlerError error{};
    const bool is_done = pg::attempt_expecting(
        [&](const ErrorData &caught) {
            if (is_of_session(caught))
                return false;
            error = unfit_error(caught);
            return true;
        },
        static_cast<F &&>(body));
    if (!is_done)
        (void)settle_unfit(candidate.item, claim.worker, error);
}

/// The outcome of one search's candidates. Another session had locked those that were neither
/// claimed nor deferred.
struct Tried {
    int32 claimed;
    int32 deferred;  ///< those that were held back, too
    int32 held_back; ///< since their definition is paused
    int32 refused;   ///< by the limit of their group, which steps of lower ranks have filled
    int32 found;
    bool is_cut;    ///< there may be more behind these
    bool is_inside; ///< older ones were stepped over
};

/// One search for claimable steps. It locks their sagas one by one and skips those that another
/// session holds: a claimer never waits. Claims at most `wanted`, and none behind the bytes of a
/// batch.
Tried claim_some(Claim &claim, const ClaimSearch &search, int32 wanted, pg::ResultSet &result) {
    const Candidates candidates = find_candidates(search);
    Tried tried{.claimed = 0,
                .deferred = 0,
                .held_back = 0,
                .refused = 0,
                .found = candidates.found(),
                .is_cut = candidates.is_cut,
                .is_inside = candidates.is_inside};
    int32 conflicts = 0;
    std::span<FoundItem> waiting = candidates.list;
    while (tried.claimed < wanted && !claim.bytes.are_passed()) {
        CHECK_FOR_INTERRUPTS();
        const FoundItem *candidate = take_next(search, waiting);
        if (candidate == nullptr)
            break;
        if (!has_room(claim, *candidate)) {
            ++tried.refused;
            continue;
        }
        Claimed outcome = Claimed::no;
        Given given{};
        with_item(claim, *candidate,
                  [&] { outcome = claim_one(claim, *candidate, given, result); });
        if (outcome == Claimed::yes) {
            note_claimed(search, *candidate);
            for (const SentValue &value : {given.input, given.results, given.headers})
                claim.bytes.add(value);
        }
        tried.claimed += outcome == Claimed::yes ? 1 : 0;
        tried.deferred += outcome == Claimed::deferred || outcome == Claimed::held_back ? 1 : 0;
        tried.held_back += outcome == Claimed::held_back ? 1 : 0;
        conflicts += outcome == Claimed::no ? 1 : 0;
    }
    note_conflicts(search, conflicts);
    return tried;
}

/// Settles leases that ran out: their steps are due later, for another queue, or compensated.
/// Returns whether there were any.
bool settle_expired(const Claim &claim, const ClaimSearch &search) {
    bool is_any = false;
    for (const FoundItem &c : find_expired(search, expired_max)) {
        CHECK_FOR_INTERRUPTS();
        with_item(claim, c, [&] {
            Saga *saga = lock_saga(c.item.saga_id, search.now, true);
            if (saga == nullptr)
                return;
            is_any = true;
            const Step &step = saga->definition->step(c.item.step_no);
            core::settle_claim(*saga, step, c.item.direction, pg::random_fraction());
            write_saga(*saga);
        });
    }
    return is_any;
}

/// Returns the number of claimed steps, at most `wanted`.
int32 claim_due(Claim &claim, ClaimSearch search, int32 wanted, pg::ResultSet &result) {
    search.wanted = wanted;
    int32 claimed = 0, inside = 0, held_back = 0;
    for (int32 searches = 0;
         searches < searches_max && claimed < wanted && held_back < held_back_max;) {
        const Tried tried = claim_some(claim, search, wanted - claimed, result);
        claimed += tried.claimed;
        held_back += tried.held_back;
        if (tried.found == 0 || (tried.claimed > 0 && tried.refused == 0) ||
            claim.bytes.are_passed())
            break;
        // Searches behind locked sagas do not count, however many there are.
        if (tried.deferred > 0 || tried.claimed > 0 || !tried.is_cut)
            ++searches;
        search.skipped = tried.is_cut && !tried.is_inside && tried.claimed == 0
                             ? search.skipped + tried.found - tried.deferred
                             : 0;
        search.is_from_head = !tried.is_inside || ++inside > inside_max;
        if (search.is_from_head)
            search.wanted = std::clamp(search.wanted * 4, deferred_max, wanted_max);
    }
    return claimed;
}

/// Returns the number of claimed steps.
int32 settle_and_claim(Claim &claim, const ClaimSearch &search, pg::ResultSet &result) {
    // Expired leases take up room under limits, so they are settled first there. Otherwise it is
    // enough to settle them when there is time, and from time to time when there is not.
    const bool has_settled = claim.limits.has_any() || is_time_to_settle(search);
    if (has_settled)
        settle_expired(claim, search);
    // After the expired leases were settled, since each of them made room.
    const QueueRoom room =
        room_of(claim.ring_id, claim.queue, claim.limits, claim.max_steps, claim.now);
    int32 claimed = claim_due(claim, search, room.steps, result);
    if (!has_settled && claimed < room.steps && !claim.bytes.are_passed() &&
        settle_expired(claim, search))
        claimed += claim_due(claim, search, room.steps - claimed, result);
    return claimed;
}

/// As settle_and_claim(), also where some steps cannot be handed out. A subtransaction for each
/// step is expensive, so the first try shares one.
int32 claim_what_can_be(Claim &claim, const ClaimSearch &search, pg::ResultSet &result) {
    int32 claimed = 0;
    const auto try_once = [&] {
        claimed = pg::with_tables(written_tables,
                                  [&] { return settle_and_claim(claim, search, result); });
    };
    if (!pg::attempt_expecting([](const ErrorData &error) { return !is_of_session(error); },
                               try_once)) {
        result.clear();
        claim.bytes = {};
        claim.is_guarded = true;
        try_once();
    }
    return claimed;
}

void claim_steps(Claim &claim, pg::ResultSet &result) {
    Ring ring = current_ring();
    claim.ring_id = ring.ring_id;
    // The queue's lock comes before counting: under limits it is held to the commit, so the next
    // claimer counts the steps that this one claims, and no two fill the same room.
    const std::optional<QueueLimits> limits = enter_queue(ring.ring_id, claim.queue);
    if (!limits)
        return;
    claim.limits = *limits;
    claim.now = pg::clock_now(); // the lock may have been waited for
    ClaimSearch search{.ring_id = ring.ring_id,
                       .queue = claim.queue,
                       .now = claim.now,
                       .only_compensations = claim.limits.is_paused(claim.now),
                       .max_running_per_group = claim.limits.max_running_per_group};
    if (const std::optional<Claimer> claimer = find_claimer(ring, claim.worker)) {
        claim.node = claimer->node;
        search.node = claimer->node;
        search.owns_retries = claimer->kind == "worker";
    }
    claim.budget = budget_of_queue(ring.ring_id, claim.queue);
    (void)bring_back(ring.ring_id, claim.queue, brought_back_max, claim.now);
    const int32 claimed = claim_what_can_be(claim, search, result);
    // Where bytes ended it, others claim what it has left.
    note_claim(claims_of_queue(ring.ring_id, claim.queue), claimed,
               claim.bytes.are_passed() ? claimed : claim.max_steps);
    CRASH_POINT("claim: limits not noted");
    if (claim.limits.rate && claimed > 0)
        note_claims(ring.ring_id, claim.queue, claim.limits, claimed, claim.now);
    if (claimed == 0)
        note_empty_claim(ring.ring_id, claim.queue, claim.now);
}

} // namespace

// claim_steps(queue, worker, max_steps, lease) -> SETOF claimed_step
STACKSAGA_FUNCTION(claim_steps) {
    PreventCommandDuringRecovery("claim_steps()"); // also where nothing is due
    pg::Arguments arguments(fcinfo);
    Claim claim{};
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
    pg::as_owner([&] { pg::with_spi([&] { claim_steps(claim, result); }); });
    return result.finish();
}

} // namespace stacksaga
