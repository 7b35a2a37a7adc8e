// Claims and answers of services: they claim a step under a lease, and answer with it.
#pragma once

#include "core/saga/saga_engine.hpp"

namespace stacksaga::core {

/// Settles a claim whose lease or timeout has passed. It may have made a fallback due on another
/// queue.
void settle_claim(SagaState &saga, const Step &step, Direction direction, double random);

/// The step as `queue` may claim it now. Its lease that ran out is settled first, which may have
/// made a fallback due on another queue; a deadline that passed begins compensation instead.
std::optional<Work> find_claimable(SagaState &saga, const Step &step, Direction direction,
                                   std::string_view queue, double random);

/// Begins the next attempt of claimable work under a lease, and returns it for the service.
Work begin_claim(SagaState &saga, const Step &step, const Work &work, std::int64_t lease,
                 std::int64_t lease_until, std::string_view worker);

/// The direction that a lease was given for.
constexpr Direction direction_of_lease(std::int64_t lease) {
    return lease > 0 ? lease_direction(lease) : Direction::act;
}

enum class AnswerOutcome : std::uint8_t {
    accept,
    accepted_before, ///< the same answer again
    fills_output,    ///< verify or an operator said that it was done, and had no output
    other_output,    ///< the first answer under this lease was another one
    lease_lost,      ///< another claim has the step, or had it
    being_undone,    ///< its compensation has begun
    not_undone,      ///< it was settled differently, and nothing will undo it
};

/// The stored completion under the lease that an answer names.
struct EarlierCompletion {
    bool is_same_output;
    bool is_output_null;
    SettledBy settled_by;
};

/// How to take an answer.
struct JudgedAnswer {
    AnswerOutcome outcome;
    bool contradicts = false;   ///< the way the step was settled: a person has to know
    std::optional<Work> work{}; ///< when it is accepted: the attempt that it answers
};

/// Both change nothing. A late answer counts, under the latest lease of a step in doubt, until
/// another claim has the step or its compensation has begun.
JudgedAnswer judge_completion(SagaState &saga, const Step &step, std::int64_t lease,
                              const std::optional<EarlierCompletion> &earlier);
/// `was_completed`: a completion under this lease is in the table.
JudgedAnswer judge_failure(SagaState &saga, const Step &step, std::int64_t lease,
                           FailureClass failure_class, bool was_completed);

/// A service gives its attempt back: it says that this attempt had no effect and will have none.
struct GivenBack {
    std::int64_t retry_after_us; ///< 0: the step is due again where it stood
    std::string_view reason;     ///< empty: none
};

/// A step may be released this often in a row, in one direction; the next release is charged.
inline constexpr std::int32_t releases_max = 1000;
/// A command is not published again at once.
inline constexpr std::int64_t published_again_after_us = 1'000'000;

/// Counts as a late retryable failure does, and refuses with a lost lease alone.
JudgedAnswer judge_release(SagaState &saga, const Step &step, std::int64_t lease,
                           bool was_completed);
/// Ends an accepted attempt without charging it. It is charged as a retryable failure where it
/// would keep a step from its end for ever, or past the memory of its service.
void step_released(SagaState &saga, const Step &step, const Work &work, const GivenBack &given,
                   double random);

/// Whether a heartbeat tells the service that it need not continue.
bool is_cancel_requested(const SagaState &saga, Direction direction);

/// The work that this lease holds, or held until it ran out.
std::optional<Work> find_leased(const SagaState &saga, const Step &step, std::int64_t lease);

/// Whether a claim can be extended: it has not run out, nor reached the step's timeout.
bool is_extensible(const SagaState &saga, const Step &step, const Work &work);

/// Extends a claim, at most up to the step's timeout, and returns until when.
std::int64_t extend_claim(SagaState &saga, const Step &step, const Work &work, std::int64_t by_us);

} // namespace stacksaga::core
