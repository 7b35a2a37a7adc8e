// Sagas that are steps of other sagas: what a parent does about its child, and a child about its
// parent.
#pragma once

#include "core/saga/saga_engine.hpp"

namespace stacksaga::core {

/// The work of a child step is due: starts the child, or requests its compensation, and waits for
/// its end until the step's timeout.
void child_step_due(SagaState &saga, const Step &step, const Work &work,
                    const std::optional<Child> &child, std::string_view worker);

/// The step's timeout has passed while it waits for its child. It does not run while the child is
/// parked, nor does it end the wait of a saga that compensates.
void child_timed_out(SagaState &saga, const Step &step, const Work &work,
                     const std::optional<Child> &child, double random);

/// A child of this step has announced its end, or that it does not compensate.
void child_settled(SagaState &saga, const Step &step, const std::optional<Child> &child);

/// It has, and cannot be read: the saga parks for the attempt that waits for it. False: no attempt
/// waits, and the announcement alone can tell how the child ended, so that it has to stay.
bool child_is_unreadable(SagaState &saga, const Step &step, const Failure &failure);

/// A child of this step has completed and cannot read that it is to compensate: the saga parks for
/// the compensation. False: it does not wait for one.
bool child_cannot_compensate(SagaState &saga, const Step &step, const Failure &failure);

/// A saga that is tried again while it compensates and does not know how a child ended has its end
/// announced once more. False: the step has no such child.
bool look_at_child(SagaState &saga, const Step &step);

/// Asks the children that the saga waits for to compensate.
void request_compensation_of_children(SagaState &saga);

/// The parent has requested that this saga compensate, which is `error`: as by cancel_saga(),
/// unless that would be refused.
void compensate_for_parent(SagaState &saga, std::string_view error);

/// A saga above this one.
struct Ancestor {
    Status status;
    Direction direction;
    std::optional<CompensationRequest> compensation_requested;
    bool is_suspended;
    OnFailure on_failure; ///< of its definition
};
void note_ancestor(Ancestry &ancestry, const Ancestor &ancestor);
/// Before a claim, an answer or a worker's turn: a saga whose ancestor compensates does so too.
void heed_ancestors(SagaState &saga, std::string_view error);

} // namespace stacksaga::core
