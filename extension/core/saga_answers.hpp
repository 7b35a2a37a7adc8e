// What services do: they claim a step under a lease, and answer with it.
#pragma once
#ifdef POSTGRES_H
#error "core comes before PostgreSQL headers"
#endif

#include "core/saga_engine.hpp"

namespace stacksaga::core {

/// Settles a claim whose lease or timeout has passed. It may have made a fallback due on another
/// queue.
void settle_claim(SagaState &saga, const Step &step, Direction direction, double random);

/// The step as `queue` may claim it now. Its lease that ran out is settled first, which may have
/// made a fallback due on another queue; a deadline that passed begins compensation instead.
std::optional<Work> find_claimable(SagaState &saga, const Step &step, Direction direction,
                                   std::string_view queue, double random);

/// Begins the next attempt of claimable work under a lease: what is to be returned to the service.
Work begin_claim(SagaState &saga, const Step &step, const Work &work, std::int64_t lease,
                 std::int64_t lease_until, std::string_view worker);

/// The direction that a lease was given for.
constexpr Direction direction_of_lease(std::int64_t lease) {
    return lease > 0 ? lease_direction(lease) : Direction::act;
}

enum class AnswerOutcome : std::uint8_t {
    accept,
    accepted_before, ///< the same answer again
    other_output,    ///< the first answer under this lease was another one
    lease_lost,
    reversed, ///< compensation has begun, and the action has been settled without it
};

/// What is in the table of a completion under the lease that an answer names.
struct EarlierCompletion {
    bool is_same_output;
};

/// How to take a completion. Changes nothing.
AnswerOutcome judge_completion(const SagaState &saga, const Step &step, std::int64_t lease,
                               const std::optional<EarlierCompletion> &earlier);

/// The work that this lease holds, or held until it ran out.
std::optional<Work> find_leased(const SagaState &saga, const Step &step, std::int64_t lease);

/// Whether a claim can be extended: it has not run out, nor reached the step's timeout.
bool is_extensible(const SagaState &saga, const Step &step, const Work &work);

/// Extends a claim, at most up to the step's timeout, and returns until when.
std::int64_t extend_claim(SagaState &saga, const Step &step, const Work &work, std::int64_t by_us);

} // namespace stacksaga::core
