// The engine: what happens to one saga, under its row lock. Everything that changes a saga, be it
// a service's answer, a worker's turn or an operator, goes through these functions.
#pragma once
#include "src/saga/saga_rows.hpp"

namespace stacksaga {

/// Why an attempt failed.
struct Failure {
    core::FailureClass failure_class;
    bool outcome_known; ///< false: the effect may have happened all the same
    std::string_view error;
    std::optional<std::string_view> sqlstate{};
    std::optional<int64> retry_after_us{}; ///< instead of the policy's delay
    TimestampTz since;                     ///< when it failed: the pause counts from here
    bool keep_lease = false;               ///< a late answer under this lease still counts
    bool was_verified = false;             ///< this is what the verify function said
    bool was_never_done = false;           ///< nor in the earlier attempts
    bool adds_to_error = false;            ///< appended to the error that the attempt has
};

/// All inside with_spi.

/// The saga's row has just been inserted: makes its first stage due at `due_at`.
void open_first_stage(const Saga &saga, TimestampTz due_at);

/// Counts an attempt as begun: pending becomes running.
void attempt_begins(Saga &saga);

/// Writes the marker, deletes the work row and starts what follows. The caller has checked that
/// the answer is still wanted.
void step_completed(Saga &saga, const Step &step, const Work &work, const pg::Param &output);

/// Writes the failure and does what the outcome rules say.
void step_failed(Saga &saga, const Step &step, const Work &work, const Failure &failure);

/// A claimed step whose lease or timeout has passed, at an instant not before work.due_at. The
/// service may have done it: the outcome is unknown.
void lease_expired(Saga &saga, const Step &step, const Work &work);

/// The work row of a signal step is due: its wait begins, or has lasted too long.
void signal_due(Saga &saga, const Step &step, const Work &work);

/// Gives waiting signal steps the signals that have arrived for them.
void take_signals(Saga &saga);

/// When an attempt that begins now should be over: the step's timeout, or the saga's deadline where
/// that comes first and is still ahead. A compensation has no deadline but its timeout.
TimestampTz attempt_deadline(const Saga &saga, const Step &step, core::Direction direction);

/// Begins compensation when the deadline of the saga has passed, and returns whether it did. Past
/// an irreversible step the saga cannot compensate, and ignores its deadline.
bool deadline_passed(Saga &saga);

/// The work row of the deadline is due.
void deadline_due(Saga &saga);

/// The step's function cannot be run, and no retry changes that: the saga parks.
void step_is_unusable(Saga &saga, const Step &step, const Work &work, const Failure &failure);

/// Starts compensation: cancels the steps that nobody has claimed, waits for those that are
/// claimed, then compensates what was done. `step` is the one that failed, or nullptr. Past an
/// irreversible step the saga parks instead; a suspended one compensates when it is resumed.
void begin_compensation(Saga &saga, const Step *step, std::string_view error);

/// Whether an irreversible step has been done, or may have been and is not under way.
bool is_past_pivot(const Saga &saga);

/// An operator resumes a suspended saga or retries a parked one: makes due what its direction
/// needs, and sets the status that this gives.
void continue_saga(Saga &saga);

/// Makes the compensations of the last stage that still needs some due, all at once; when no stage
/// does, the saga ends as failed. No compensation is due when this is called.
void compensate_next(Saga &saga);

} // namespace stacksaga
