#include "core/saga_answers.hpp"

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
    const bool is_free = work && !work->is_claimed() && !work->verifying &&
                         work->due_at <= saga.now && step.queue_of(direction, work->falling_back) == queue &&
                         !saga.is_suspended();
    return is_free && !deadline_passed(saga) ? work : std::nullopt;
}

Work begin_claim(SagaState &saga, const Step &step, const Work &work, std::int64_t lease,
                 std::int64_t lease_until, std::string_view worker) {
    Work attempt = work;
    attempt.attempt = work.attempt + 1;
    attempt.lease = lease;
    attempt.lease_until = lease_until;
    attempt.due_at = std::min(lease_until, time_plus(saga.now, step.timeout_us));
    attempt.worker = worker;
    claim_work(saga, attempt, lease_until, attempt.due_at);
    attempt_begins(saga);
    return *find_work(saga, work.step_no, work.direction);
}

AnswerOutcome judge_completion(const SagaState &saga, const Step &step, std::int64_t lease,
                               const std::optional<EarlierCompletion> &earlier) {
    if (earlier)
        return earlier->is_same_output ? AnswerOutcome::accepted_before
                                       : AnswerOutcome::other_output;
    if (find_leased(saga, step, lease))
        return AnswerOutcome::accept;
    return direction_of_lease(lease) == Direction::act && !saga.acts() ? AnswerOutcome::reversed
                                                                       : AnswerOutcome::lease_lost;
}

std::optional<Work> find_leased(const SagaState &saga, const Step &step, std::int64_t lease) {
    std::optional<Work> work = find_work(saga, step.no, direction_of_lease(lease));
    return work && work->lease == lease ? work : std::nullopt;
}

bool is_extensible(const SagaState &saga, const Step &step, const Work &work) {
    return work.is_claimed() && time_plus(*work.started_at, step.timeout_us) > saga.now;
}

std::int64_t extend_claim(SagaState &saga, const Step &step, const Work &work, std::int64_t by_us) {
    const std::int64_t lease_until = std::max(*work.lease_until, time_plus(saga.now, by_us));
    const std::int64_t until = std::min(lease_until, time_plus(*work.started_at, step.timeout_us));
    extend_work(saga, work, lease_until, until);
    return until;
}

} // namespace stacksaga::core
