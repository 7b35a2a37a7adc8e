// What operators do to a saga: cancel, suspend, resume, retry, resolve.
#pragma once
#ifdef POSTGRES_H
#error "core comes before PostgreSQL headers"
#endif

#include "core/saga_engine.hpp"

namespace stacksaga::core {

/// Why an action is refused: what the saga is besides its status, and what to do instead.
struct Refusal {
    std::string_view because; ///< follows "It is <status>"; may be empty
    std::string_view hint;
};

/// Each changes the saga, or nothing when it is refused. `error`: what the saga says of the cancel.
std::optional<Refusal> cancel_saga(SagaState &saga, std::string_view error);
std::optional<Refusal> suspend_saga(SagaState &saga);
/// The attempts that these two make due are due `delay` microseconds from now at the earliest;
/// deadlines and leases stay.
std::optional<Refusal> resume_saga(SagaState &saga, std::int64_t delay = 0);
std::optional<Refusal> retry_saga(SagaState &saga, std::int64_t delay = 0);

/// Whether a child step waits for a saga of its own, which is to be settled instead;
/// `child_stands`: the latest one has not failed.
bool is_settled_by_child(SagaState &saga, const Step &step, bool child_stands);

/// What an operator can settle of a step: its live work, or a failed attempt that is not tried
/// again. Nothing when it neither runs nor waits.
std::optional<Work> find_unsettled(SagaState &saga, const Step &step);

/// The step was done, with this output.
void resolve_as_done(SagaState &saga, const Step &step, const Work &unsettled, Value output,
                     std::string_view role);
/// The step was not done, nor is it by any earlier attempt; `error` says who said so.
void resolve_as_not_done(SagaState &saga, const Step &step, const Work &unsettled,
                         std::string_view error, std::string_view role, double random);

} // namespace stacksaga::core
