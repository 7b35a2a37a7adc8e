// The deadline of a saga: when it passes, and what the time means that a saga is parked.
#pragma once

#include "core/saga/saga.hpp"

namespace stacksaga::core {

/// Requests compensation when the deadline of the saga has passed, and returns whether it did. Past
/// an irreversible step the saga cannot compensate, and ignores its deadline.
bool deadline_passed(SagaState &saga);

/// The work of the deadline is due.
void deadline_due(SagaState &saga);

/// Whether the deadline has passed of a saga that parks at it instead of compensating.
bool parks_at_deadline(const SagaState &saga);

/// A saga that its deadline has parked goes on: the whole length of the deadline begins again.
void end_deadline_park(SagaState &saga);

} // namespace stacksaga::core
