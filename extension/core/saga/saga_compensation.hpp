// Compensation: how it begins, goes on and ends, and what it cannot pass.
#pragma once

#include "core/saga/saga_engine.hpp"

namespace stacksaga::core {

/// The saga waits for an operator, on account of this step in this direction.
void park_saga(SagaState &saga, const Step &step, Direction direction, std::string_view error);

/// Whether an irreversible step has been done: the saga cannot compensate.
bool is_past_pivot(SagaState &saga);
/// Whether one is in flight or in doubt: the direction does not turn.
bool has_open_pivot(SagaState &saga);

/// The saga is to compensate as soon as no irreversible step is in flight or in doubt, unless one
/// is done by then. The first request stays, except that a cancel replaces others, and a failure
/// a deadline that only parks the saga. `cause`: the step that failed, and why. settle() does what
/// follows.
void request_compensation(SagaState &saga, CompensationRequest request, const Cause &cause);

/// Compensation starts: drops the steps that have not begun, and waits for those in flight.
void start_compensation(SagaState &saga);

/// Decides for a saga that compensates: when no action is in flight any more, the compensations
/// of the last stage that still needs some are due, all at once; when no stage does, the saga ends
/// as failed. It parks for a step that only a person can decide.
void settle_backward(SagaState &saga, const Cause &cause);

} // namespace stacksaga::core
