// Sagas that are steps of other sagas: what a parent does about its child, and a child about its
// parent.
#pragma once
#ifdef POSTGRES_H
#error "core comes before PostgreSQL headers"
#endif

#include "core/saga_engine.hpp"

namespace stacksaga::core {

/// The latest saga that a step has started, as a decision about it needs it.
struct Child {
    Status status;
    std::int32_t run;
    bool is_requested;                 ///< to compensate, and has not read the request
    Value output;                      ///< of a completed one: what its steps returned
    std::string_view why_failed;       ///< of a failed one
    std::string_view why_irreversible; ///< of a completed one: it does not compensate
};

/// The work of a child step is due: starts the child, or requests its compensation, and waits for
/// its end until the step's timeout.
void child_step_due(SagaState &saga, const Step &step, const Work &work,
                    const std::optional<Child> &child, std::string_view worker);

/// The step's timeout has passed while it waits for its child.
void child_timed_out(SagaState &saga, const Step &step, const Work &work, double random);

/// A child of this step has announced its end, or that it does not compensate.
void child_settled(SagaState &saga, const Step &step, const std::optional<Child> &child);

/// Asks the children that the saga waits for to compensate.
void request_compensation_of_children(SagaState &saga);

/// The parent has requested that this saga compensate, which is `error`.
void compensate_for_parent(SagaState &saga, std::string_view error);

} // namespace stacksaga::core
