// Compensation: how it begins, goes on and ends, and what it cannot pass.
#pragma once
#ifdef POSTGRES_H
#error "core comes before PostgreSQL headers"
#endif

#include "core/saga.hpp"

namespace stacksaga::core {

/// The saga waits for an operator, on account of this step in this direction.
void park_saga(SagaState &saga, const Step &step, Direction direction, std::string_view error);

/// Starts compensation: cancels the steps that nobody has claimed, waits for those that are
/// claimed, then compensates what was done. `step` is the one that failed, or nullptr. Past an
/// irreversible step the saga parks instead; a suspended one compensates when it is resumed.
void begin_compensation(SagaState &saga, const Step *step, std::string_view error);

/// Whether an irreversible step has been done, or may have been and is not under way.
bool is_past_pivot(SagaState &saga);

/// Makes the compensations of the last stage that still needs some due, all at once; when no stage
/// does, the saga ends as failed. No compensation is due when this is called.
void compensate_next(SagaState &saga);

/// A claimed step has settled while the saga compensates. `happened`: it was done, or may have
/// been. If it is irreversible the saga can neither compensate nor continue, and parks.
void settled_while_compensating(SagaState &saga, const Step &step, bool happened);

/// A compensation is done: makes the next ones due.
void compensation_done(SagaState &saga);

/// A compensation has failed for good, which is `error`: the saga parks, at once or after the other
/// compensations.
void compensation_failed(SagaState &saga, const Step &step, std::string_view error);

/// An operator resumes or retries a saga that compensates.
void continue_compensation(SagaState &saga);

} // namespace stacksaga::core
