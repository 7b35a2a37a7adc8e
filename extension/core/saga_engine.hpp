// The engine: what becomes of one saga. Every change of a saga, be it by a worker's turn, by a
// service's answer or by an operator, is decided here, on the state that was loaded, and nowhere
// else. No function reads a table or a clock; what is random is passed in.
#pragma once
#ifdef POSTGRES_H
#error "core comes before PostgreSQL headers"
#endif

#include "core/saga.hpp"

namespace stacksaga::core {

/// The saga has just been started: its first stage is due at `due_at`.
void open_first_stage(SagaState &saga, std::int64_t due_at);

/// Counts an attempt as begun: pending becomes running.
void attempt_begins(SagaState &saga);

/// Writes the marker, removes the work and starts what follows. The caller has checked that the
/// answer is still wanted.
void step_completed(SagaState &saga, const Step &step, const Work &work, Value output,
                    Value published = {});

/// Writes the failure and does what the outcome rules say. `random` (0 to 1) chooses within the
/// jitter of a pause.
void step_failed(SagaState &saga, const Step &step, const Work &work, const Failure &failure,
                 double random);

/// A claimed step whose lease or timeout has passed, at an instant not before work.due_at. The
/// service may have done it: the outcome is unknown.
void lease_expired(SagaState &saga, const Step &step, const Work &work, double random);

/// How a failure reads of an attempt that ended the process it ran in.
inline constexpr std::string_view crash_error = "the handler ended its process";
inline constexpr std::string_view crash_sqlstate = "57P02";

/// An attempt at a step that ran ahead ended its process, and what ran before it was undone: the
/// tables do not know yet that the step's turn comes. The attempt is charged when it does. False:
/// the step has been tried or settled since.
bool died_ahead(SagaState &saga, const Step &step, Direction direction, std::string_view worker);

/// The turn of this stage has come, and attempts of it died ahead: they fail now.
void charge_deaths(SagaState &saga, std::int16_t stage, Direction direction);

/// The step's function cannot be run, and no retry changes that: the saga parks.
void step_is_unusable(SagaState &saga, const Step &step, const Work &work, const Failure &failure);

/// When an attempt that begins now should be over: the step's timeout, or the saga's deadline where
/// that comes first and is still ahead. A compensation has no deadline but its timeout.
std::int64_t attempt_deadline(const SagaState &saga, const Step &step, Direction direction);

// --------------------------------------------------------------------------- timers and signals

/// The work of a timer step is due.
void timer_due(SagaState &saga, const Step &step, const Work &work, std::string_view worker);

/// The work of a signal step is due: its wait begins, or has lasted too long, which is `error`.
void signal_due(SagaState &saga, const Step &step, const Work &work, std::string_view error);

/// Gives waiting signal steps the signals that have arrived for them.
void take_signals(SagaState &saga);

/// Begins compensation when the deadline of the saga has passed, and returns whether it did. Past
/// an irreversible step the saga cannot compensate, and ignores its deadline.
bool deadline_passed(SagaState &saga);

/// The work of the deadline is due.
void deadline_due(SagaState &saga);

// ------------------------------------------------------------------------------------- resuming

/// An operator resumes a suspended saga or retries a parked one: makes due what its direction
/// needs, and sets the status that this gives.
void continue_saga(SagaState &saga);

} // namespace stacksaga::core
