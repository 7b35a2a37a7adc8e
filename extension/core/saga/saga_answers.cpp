#include "core/saga/saga_answers.hpp"

#include "core/saga/saga_deadline.hpp"

namespace stacksaga::core {

void settle_claim(SagaState &saga, const Step &step, Direction direction, double random) {
    const std::optional<Work> work = find_work(saga, step.no, direction);
    if (work && work->is_claimed() && work->due_at <= saga.now)
        lease_expired(saga, step, *work, random);
}

std::optional<Work> find_claimable(SagaState &saga, const Step &step, Direction direction,
                                   std::string_view queue, double random) {
    settle_claim(saga, step, direction, random);
    const std::optional<Work> work = find_work(saga, step.no, direction);
    const bool is_free =
        work && !work->is_claimed() && !work->verifying && work->due_at <= saga.now &&
        step.queue_of(direction, work->falling_back) == queue && may_begin(saga, *work);
    return is_free && !deadline_passed(saga) && !withhold_repetition(saga, step, *work)
               ? work
               : std::nullopt;
}

Work begin_claim(SagaState &saga, const Step &step, const Work &work, std::int64_t lease,
                 std::int64_t lease_until, std::string_view worker) {
    Work attempt = work;
    attempt.attempt = work.attempt + 1;
    attempt.lease = lease;
    attempt.lease_until = lease_until;
    attempt.due_at = std::min(lease_until, time_plus(saga.now, step.timeout));
    attempt.worker = worker;
    claim_work(saga, attempt, lease_until, attempt.due_at);
    attempt_begins(saga);
    return *find_work(saga, work.step_no, work.direction);
}

namespace {

bool has_compensation_begun(SagaState &saga, std::int16_t step_no) {
    return find_work(saga, step_no, Direction::compensate) || has_compensated(saga, step_no) ||
           last_failed_attempt(saga, step_no, Direction::compensate) > 0;
}

/// Whether the step is done in this direction, or its compensation has begun.
bool is_over(SagaState &saga, const Step &step, Direction direction) {
    if (is_final(saga.row.status))
        return true;
    return direction == Direction::act
               ? has_acted(saga, step.no) || has_compensation_begun(saga, step.no)
               : has_compensated(saga, step.no);
}

/// The attempt of this failure, if an answer still counts: it is the latest one and in doubt.
std::optional<Work> find_late(SagaState &saga, const Step &step, const PastFailure &f) {
    const std::optional<Work> row = find_work(saga, step.no, f.direction);
    if (f.outcome_known || f.attempt != last_ended_attempt(saga, step.no, f.direction) ||
        (row && (row->is_claimed() || row->attempt != f.attempt)) ||
        is_over(saga, step, f.direction))
        return std::nullopt;
    Work work = row.value_or(Work{.step_no = step.no, .direction = f.direction, .due_at = never});
    work.attempt = f.attempt;
    work.lease = f.lease;
    work.started_at = f.started_at;
    work.falling_back = f.by_fallback;
    return work;
}

/// Whether the report adds nothing to the failed attempt: it repeats it, or says less than verify
/// or an operator has said since.
bool says_no_more(const PastFailure &f, FailureClass report) {
    if (report == FailureClass::unknown || report == f.failure_class)
        return true;
    // It never happened, and cannot any more.
    return f.outcome_known && f.failure_class != FailureClass::retryable;
}

/// The step takes no answer under this lease any more. `f`: the failed attempt under it.
AnswerOutcome refusal_of(SagaState &saga, const Step &step, Direction direction,
                         const std::optional<PastFailure> &f) {
    if (direction == Direction::compensate)
        return AnswerOutcome::lease_lost;
    if (has_compensation_begun(saga, step.no))
        return AnswerOutcome::being_undone;
    const std::optional<Work> row = find_work(saga, step.no, direction);
    if (row && row->is_claimed())
        return AnswerOutcome::lease_lost; // to another claim
    const bool is_open = is_in_doubt(saga, step.no) || has_acted(saga, step.no);
    if (!saga.acts())
        return is_open && step.compensable && !is_final(saga.row.status)
                   ? AnswerOutcome::being_undone // when its turn comes
                   : AnswerOutcome::not_undone;
    const bool is_latest = f && f->attempt == last_ended_attempt(saga, step.no, direction) &&
                           !has_acted(saga, step.no);
    return is_latest ? AnswerOutcome::not_undone : AnswerOutcome::lease_lost;
}

/// No claim has followed this attempt, and nothing has settled its step.
bool is_latest_claim(SagaState &saga, const Step &step, Direction direction, std::int32_t attempt) {
    if (const std::optional<Work> row = find_work(saga, step.no, direction))
        return row->attempt == attempt && !row->is_claimed();
    const bool is_done =
        direction == Direction::act ? has_acted(saga, step.no) : has_compensated(saga, step.no);
    return !is_done && attempt == last_ended_attempt(saga, step.no, direction);
}

} // namespace

JudgedAnswer judge_completion(SagaState &saga, const Step &step, std::int64_t lease,
                              const std::optional<EarlierCompletion> &earlier) {
    if (earlier) {
        if (earlier->is_same_output)
            return {AnswerOutcome::accepted_before};
        const bool fills = earlier->is_output_null && earlier->settled_by != SettledBy::answer;
        return {fills ? AnswerOutcome::fills_output : AnswerOutcome::other_output};
    }
    if (const std::optional<Work> work = find_leased(saga, step, lease))
        if (work->is_claimed())
            return {.outcome = AnswerOutcome::accept, .work = work};
    const std::optional<PastFailure> f = find_failure(saga, step.no, lease);
    if (f)
        if (const std::optional<Work> late = find_late(saga, step, *f))
            return {.outcome = AnswerOutcome::accept, .work = late};
    const Direction direction = direction_of_lease(lease);
    const bool is_done =
        direction == Direction::act ? has_acted(saga, step.no) : has_compensated(saga, step.no);
    const bool is_denied = f ? f->outcome_known : find_release(saga, step.no, lease).has_value();
    return {.outcome = refusal_of(saga, step, direction, f), .contradicts = is_denied && !is_done};
}

JudgedAnswer judge_failure(SagaState &saga, const Step &step, std::int64_t lease,
                           FailureClass failure_class, bool was_completed) {
    if (const std::optional<Work> work = find_leased(saga, step, lease))
        if (work->is_claimed())
            return {.outcome = AnswerOutcome::accept, .work = work};
    const std::optional<PastFailure> f = find_failure(saga, step.no, lease);
    if (f && says_no_more(*f, failure_class))
        return {AnswerOutcome::accepted_before};
    if (!f && failure_class != FailureClass::non_retryable && find_release(saga, step.no, lease))
        return {AnswerOutcome::accepted_before}; // it said as much
    if (f)
        if (const std::optional<Work> late = find_late(saga, step, *f))
            return {.outcome = AnswerOutcome::accept, .work = late};
    const Direction direction = direction_of_lease(lease);
    if (was_completed && failure_class == FailureClass::unknown)
        return {AnswerOutcome::accepted_before}; // which was settled since
    if (was_completed)
        return {.outcome = has_compensation_begun(saga, step.no) && direction == Direction::act
                               ? AnswerOutcome::being_undone
                               : AnswerOutcome::not_undone,
                .contradicts = true};
    return {refusal_of(saga, step, direction, f)};
}

JudgedAnswer judge_release(SagaState &saga, const Step &step, std::int64_t lease,
                           bool was_completed) {
    if (const std::optional<Work> work = find_leased(saga, step, lease))
        if (work->is_claimed())
            return {.outcome = AnswerOutcome::accept, .work = work};
    const Direction direction = direction_of_lease(lease);
    if (const std::optional<Release> r = find_release(saga, step.no, lease))
        return {is_latest_claim(saga, step, direction, r->attempt) ? AnswerOutcome::accepted_before
                                                                   : AnswerOutcome::lease_lost};
    const std::optional<PastFailure> f = find_failure(saga, step.no, lease);
    if (f)
        if (const std::optional<Work> late = find_late(saga, step, *f))
            return {.outcome = AnswerOutcome::accept, .work = late};
    if (f && f->outcome_known && is_latest_claim(saga, step, direction, f->attempt))
        return {AnswerOutcome::accepted_before}; // a failure said as much, or more
    return {.outcome = AnswerOutcome::lease_lost, .contradicts = was_completed};
}

namespace {

/// When the step is due again.
std::int64_t due_after(const SagaState &saga, const Step &step, const Work &work,
                       std::int64_t retry_after_us) {
    if (!step.queue_of(work.direction, work.falling_back)) // a worker publishes it
        retry_after_us = std::max(retry_after_us, published_again_after_us);
    return retry_after_us > 0 ? time_plus(saga.now, retry_after_us)
                              : std::min(work.place_at.value_or(saga.now), saga.now);
}

/// Why the release is charged; empty: it is not.
std::string_view why_charged(SagaState &saga, const Step &step, const Work &work,
                             std::int64_t due_at) {
    if (work.releases >= releases_max)
        return "released more than 1,000 times in a row";
    const std::optional<Doubt> doubt = find_doubt(saga, step.no, work.direction);
    if (doubt && saga.dedupe_retention_us &&
        std::max(due_at, saga.now) > time_plus(doubt->since, *saga.dedupe_retention_us))
        return "released for longer than its service remembers the key of an attempt in doubt";
    return {};
}

} // namespace

void step_released(SagaState &saga, const Step &step, const Work &work, const GivenBack &given,
                   double random) {
    if (is_late(work)) // before it is asked whether an attempt is in doubt
        settle_outcomes(
            saga, {.step_no = work.step_no, .direction = work.direction, .attempt = work.attempt});
    const std::int64_t due_at = due_after(saga, step, work, given.retry_after_us);
    Failure failure{.failure_class = FailureClass::retryable,
                    .outcome_known = true,
                    .error = given.reason,
                    .since = saga.now};
    if (const std::string_view why = why_charged(saga, step, work, due_at); why.empty()) {
        failure.released_until = due_at;
    } else {
        failure.error = given.reason.empty() ? why : joined(saga, why, given.reason);
        if (given.retry_after_us > 0)
            failure.retry_after_us = given.retry_after_us;
    }
    step_failed(saga, step, work, failure, random);
}

bool is_cancel_requested(const SagaState &saga, Direction direction) {
    const bool is_requested = saga.row.compensation_requested &&
                              !(saga.is_parked() && parks_at_deadline(saga)); // nothing is undone
    return direction == Direction::act &&
           (!saga.acts() || is_requested || saga.ancestry.compensates);
}

std::optional<Work> find_leased(const SagaState &saga, const Step &step, std::int64_t lease) {
    std::optional<Work> work = find_work(saga, step.no, direction_of_lease(lease));
    return work && work->lease == lease ? work : std::nullopt;
}

bool is_extensible(const SagaState &saga, const Step &step, const Work &work) {
    return work.is_claimed() && time_plus(*work.started_at, step.timeout) > saga.now;
}

std::int64_t extend_claim(SagaState &saga, const Step &step, const Work &work, std::int64_t by_us) {
    const std::int64_t lease_until = std::max(*work.lease_until, time_plus(saga.now, by_us));
    const std::int64_t until = std::min(lease_until, time_plus(*work.started_at, step.timeout));
    extend_work(saga, work, lease_until, until);
    return until;
}

} // namespace stacksaga::core
