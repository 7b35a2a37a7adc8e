// The engine decides what becomes of one saga. Every change of a saga, be it by a worker's turn, by
// a service's answer or by an operator, is decided here, on the state that was loaded, and nowhere
// else. No function reads a table or a clock; what is random is passed in.
#pragma once

#include "core/saga/saga.hpp"

namespace stacksaga::core {

/// A step's work when its turn comes at `due_at`, after `attempt` attempts.
NewWork first_work(const SagaState &saga, const Step &step, std::int64_t due_at,
                   std::int32_t attempt);

/// The action has failed for good. Its fallback is tried, with attempts of its own, unless the step
/// is in doubt. An irreversible step in doubt waits for a person.
void give_up(SagaState &saga, const Step &step, const Work &work, bool in_doubt);

/// The saga has just been started: its first stage is due at `due_at`.
void open_first_stage(SagaState &saga, std::int64_t due_at);

/// Counts an attempt as begun: pending becomes running.
void attempt_begins(SagaState &saga);

/// The subject of an event: why it parks the saga or makes it compensate.
struct Cause {
    const Step *step = nullptr;
    std::string_view error{};
};

/// Decides from the steps that are done, failed, in flight and in doubt whether the saga continues,
/// waits, parks, compensates or ends. Called after every event that can change more than a step's
/// own row.
void settle(SagaState &saga, const Cause &cause = {});

/// Writes the marker, removes the work and starts what follows. The caller has checked that the
/// answer is still wanted.
void step_completed(SagaState &saga, const Step &step, const Work &work, Value output,
                    Value published = {}, SettledBy settled_by = SettledBy::answer);

/// An attempt whose lease has ended.
bool is_late(const Work &work);

/// Writes the failure, or the release, and does what the outcome rules say. `random` (0 to 1)
/// chooses within the jitter of a pause.
void step_failed(SagaState &saga, const Step &step, const Work &ended, const Failure &failure,
                 double random);

/// A claimed step whose lease or timeout has passed, at an instant not before work.due_at. The
/// service may have done it: the outcome is unknown. `child`: of a child step, the latest saga.
void lease_expired(SagaState &saga, const Step &step, const Work &work, double random,
                   const std::optional<Child> &child = {});

/// The answer of a verify function.
struct VerifyAnswer {
    VerifyOutcome outcome;
    Value output{};           ///< of the step, when it is done
    Value published{};        ///< the messages of the verify function
    std::string_view error{}; ///< the outcome in words
};

/// The verify function has answered about the attempts in doubt.
void verify_answered(SagaState &saga, const Step &step, const Work &work,
                     const VerifyAnswer &answer, double random);
/// It has raised `error`, classified as an action's: after a retryable one it is asked again.
void verify_failed(SagaState &saga, const Step &step, const Work &work, const Failure &error,
                   double random);

/// Whether a service may have forgotten the key of an attempt in doubt, so that it is not to be
/// repeated.
bool is_past_dedupe_retention(SagaState &saga, const Step &step, Direction direction);
/// Before an attempt of work that is due: one that would repeat a key that its service may have
/// forgotten does not begin. True: verify is due instead, or a person decides.
bool withhold_repetition(SagaState &saga, const Step &step, const Work &work);

/// How a failure reads of an attempt that ended the process it ran in.
inline constexpr std::string_view crash_error = "the handler ended its process";
inline constexpr std::string_view crash_sqlstate = "57P02";

/// An attempt at a step that ran ahead ended its process, and what ran before it was undone: the
/// tables do not know yet that the step's turn comes. The attempt is charged when it does. False:
/// the step has been tried or settled since.
bool crashed_ahead(SagaState &saga, const Step &step, Direction direction, std::string_view worker);

/// The turn of this stage has come, and attempts of it crashed ahead: they fail now.
void charge_crashes(SagaState &saga, std::int16_t stage, Direction direction);

/// The step's function, or its verify function, cannot be run, and no retry changes that: the saga
/// parks.
void step_is_unusable(SagaState &saga, const Step &step, const Work &work, const Failure &failure);

/// The deadline of the saga or the request of its parent cannot be handled: the saga parks for an
/// open step, which a person retries. False: no step is open, or the saga is parked.
bool saga_is_unusable(SagaState &saga, std::string_view error);

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

// ------------------------------------------------------------------------------------- resuming

/// The saga is not suspended any more. Its deadline is moved by the time that it was. A park goes
/// on, whose time counts from now.
void end_suspension(SagaState &saga);

} // namespace stacksaga::core
