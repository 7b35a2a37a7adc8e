// One saga in memory: what was loaded of it, and what has become of that since.
//
// The engine (saga_engine.hpp) decides on this alone. The session that loads it holds the saga's
// lock, and writes at the end what differs: rows of work by their states, the saga's row by its
// changes of status, and what was appended. So what comes and goes between two writes is never
// written.
#pragma once

#include "core/common/list.hpp"
#include "core/saga/definition.hpp"
#include "core/saga/work_purpose.hpp"
#include "core/time/instant.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace stacksaga::core {

/// A jsonb that decisions pass on without looking at it.
struct Value {
    std::uintptr_t bits = 0;
    bool is_null = true;
};

/// The step number of work that concerns the whole saga.
inline constexpr std::int16_t no_step = 0;

/// A row of work: a step in one direction, or the deadline of the saga.
struct Work {
    std::int16_t step_no;
    Direction direction;
    WorkPurpose purpose = WorkPurpose::step;
    std::int64_t due_at;
    std::int32_t attempt = 0;      ///< attempts so far; while claimed: the number of the attempt
    std::int32_t attempt_base = 0; ///< attempts that no longer count
    std::optional<std::int64_t> lease{};
    std::optional<std::int64_t> lease_until{}; ///< set while claimed
    std::optional<std::int64_t> started_at{};
    std::optional<std::int64_t> resume_at{}; ///< while it is held back: when it would be due
    bool is_held_back = false; ///< held back by nothing but the pause of its definition
    bool verifying = false;
    std::int32_t verify_attempts = 0; ///< how often in a row verify has not decided
    bool falling_back = false; ///< the fallback is tried; of a compensation: it undoes the fallback
    bool deferred = false;     ///< the retry budget was empty
    std::optional<std::string_view> worker{};
    /// When it was due before its latest claim: its place among others, which a release gives back.
    std::optional<std::int64_t> place_at{};
    std::int32_t releases = 0; ///< of the latest claims, in a row

    bool is_claimed() const { return lease_until.has_value(); }
    /// An attempt ended its process while the step ran ahead: the row waits for the step's turn.
    bool is_ahead() const {
        return resume_at.value_or(due_at) == never && attempt > attempt_base && !lease &&
               !is_claimed() && !started_at;
    }
    bool is(std::int16_t no, Direction d) const {
        return purpose == WorkPurpose::step && step_no == no && direction == d;
    }
};

/// How a row of work differs from the table's.
enum class RowState : std::uint8_t {
    stored,  ///< as it was loaded
    added,   ///< not in the table
    changed, ///< in the table, with other values
    removed, ///< in the table
    gone,    ///< added and removed again: it was never in the table
};

struct WorkRow {
    Work work;
    RowState state;
    bool wakes; ///< the sessions that can do it are woken

    bool is_live() const { return state != RowState::removed && state != RowState::gone; }
};

/// The marker of a completed step.
struct Effect {
    std::int16_t step_no;
    Direction direction;
    std::int32_t attempt;
    std::optional<std::int64_t> lease;
    std::int64_t started_at;
    std::optional<std::string_view> worker;
    Value output;
    Value published;          ///< the messages of its handler
    bool by_fallback = false; ///< the fallback did it
    SettledBy settled_by = SettledBy::answer;
};

/// Why an attempt failed.
struct Failure {
    FailureClass failure_class;
    bool outcome_known; ///< false: the effect may have happened all the same
    std::string_view error;
    std::optional<std::string_view> sqlstate{};
    std::optional<std::int64_t> retry_after_us{}; ///< instead of the policy's delay
    std::int64_t since = 0;                       ///< when it failed: the pause counts from here
    bool was_never_done = false;                  ///< nor in the earlier attempts
    bool adds_to_error = false;                   ///< appended to the error that the attempt has
    bool is_crash = false;                        ///< the function ended its process
    /// The service gave the attempt back, which is not charged: when the step is due again.
    std::optional<std::int64_t> released_until{};
    std::optional<std::string_view> detail{};  ///< PostgreSQL's DETAIL, for operators alone
    std::optional<std::string_view> context{}; ///< and its CONTEXT
};

/// A failed attempt; it replaces what was written of the same attempt before.
struct NewFailure {
    std::int16_t step_no;
    Direction direction;
    std::int32_t attempt;
    std::optional<std::int64_t> lease;
    std::int64_t started_at;
    std::optional<std::string_view> worker;
    bool by_fallback;
    Failure failure;
};

/// The facts that decisions need about failed attempts in the table.
struct PastFailure {
    std::int16_t step_no;
    Direction direction;
    std::int32_t attempt;
    FailureClass failure_class;
    bool outcome_known;
    bool by_fallback;
    std::optional<std::int64_t> lease;
    std::int64_t started_at;
    std::int64_t failed_at;
};

/// An attempt that its service gave back.
struct Release {
    std::int16_t step_no;
    Direction direction;
    std::int32_t attempt;
    std::optional<std::int64_t> lease;
};

/// As it is written.
struct NewRelease {
    Release release;
    std::int64_t started_at;
    std::optional<std::string_view> worker;
    bool by_fallback;
    std::string_view reason; ///< empty: none was given
};

/// The steps done, compensated, failed and released so far. Each part is loaded when it is first
/// asked for: most decisions need no failures, and hardly any needs releases.
struct Progress {
    bool has_effects = false;
    bool has_failures = false;
    bool has_releases = false;
    List<bool> acted;             ///< by step_no - 1
    List<bool> acted_by_fallback; ///< of those
    List<bool> acted_by_person;   ///< of those: settled by a person while nothing was in doubt
    List<bool> compensated;
    List<PastFailure> failures;
    List<Release> releases;
};

/// A signal that has arrived.
struct Signal {
    std::int32_t no;
    std::string_view name;
    Value payload;
    bool is_taken = false; ///< by a step
};

/// The row of a saga after a change of its status.
struct SagaRow {
    Status status;
    Direction direction;
    std::optional<std::int16_t> failed_step{};
    std::optional<std::string_view> error{};
    std::optional<std::int16_t> parked_step{};
    std::optional<Direction> parked_direction{};
    /// A pending compensation. Its reason is in failed_step and error.
    std::optional<CompensationRequest> compensation_requested{};
    /// Since when the saga is suspended: its deadline does not run. A park does not end it.
    std::optional<std::int64_t> suspended_at{};
    /// Since when the deadline of a saga that is parked while it acts does not run; a time that it
    /// was suspended as well is counted already.
    std::optional<std::int64_t> parked_at{};
};

/// The latest saga that a step has started, as a decision about it needs it.
struct Child {
    Status status;
    std::int32_t run;
    bool is_requested;                 ///< to compensate, and has not read the request
    Value output;                      ///< of a completed one: what its steps returned
    std::string_view why_failed;       ///< of a failed one
    std::string_view why_irreversible; ///< of a completed one: it does not compensate
};

/// The engine asks another saga for something.
struct ChildRequest {
    enum class Kind : std::uint8_t {
        start,
        compensate,
        look, ///< announce how it stands, as at its end
    } kind;
    std::int16_t step_no;
    std::int32_t run; ///< of a start
};

/// None of the step's attempts in this direction took effect, or this one did not.
struct Settled {
    std::int16_t step_no;
    Direction direction;
    std::optional<std::int32_t> attempt{};

    bool concerns(std::int16_t no, Direction d, std::int32_t of_attempt) const {
        return step_no == no && direction == d && (!attempt || *attempt == of_attempt);
    }
};

/// An irreversible step was done while a compensation was pending, which is void.
struct VoidedRequest {
    CompensationRequest request;
    std::int16_t step_no;
};

struct TakenSignal {
    std::int32_t no;
    std::int16_t step_no;
};

/// Changes to write beside the rows of work.
struct Changes {
    List<SagaRow> rows; ///< one after the other, as the transitions allow
    List<Effect> effects;
    List<Settled> settled;     ///< of the failures in the table
    List<NewFailure> failures; ///< after these: a later attempt may have an unknown outcome again
    List<NewRelease> releases;
    List<TakenSignal> taken;
    List<ChildRequest> children;
    std::int32_t retries = 0; ///< how many were decided, to be counted
    std::optional<VoidedRequest> voided_request{};
    bool moves_deadline = false;  ///< deadline_at is another one
    bool removes_notices = false; ///< a final saga has no use for what its children announce
    bool notifies_parent = false;
};

struct SagaState;

/// Loads what not every decision needs, when the first one asks for it; under the saga's lock, so
/// it is the same whenever it is read.
struct Source {
    void (*load_effects)(SagaState &saga);  ///< fills progress.acted and compensated
    void (*load_failures)(SagaState &saga); ///< fills progress.failures
    void (*load_releases)(SagaState &saga); ///< fills progress.releases
    void (*load_signals)(SagaState &saga);  ///< those that no step has taken, in order of arrival
    /// Why an attempt of an action that is in the table failed.
    std::string_view (*find_error)(SagaState &saga, std::int16_t step_no, std::int32_t attempt);
};

/// The decisions of the sagas above a child about it.
struct Ancestry {
    bool is_suspended = false; ///< one of them: nothing of this saga begins
    bool compensates = false;  ///< one of them, or it is to
};

struct SagaState {
    const Definition *definition;
    SagaRow row;    ///< as it is now
    SagaRow stored; ///< as it is in the table
    std::optional<std::int64_t> deadline_at;
    std::optional<Length> deadline; ///< its whole length
    bool is_child;
    Ancestry ancestry{};
    bool is_paused = false; ///< its definition: no attempt of an action begins
    std::int64_t now;       ///< one instant for everything that is decided
    /// How long services remember a key; nothing: for ever.
    std::optional<std::int64_t> dedupe_retention_us{};
    Memory memory;
    const Source *source;

    List<WorkRow> work;
    Progress progress;
    bool has_signals_loaded = false;
    List<Signal> signals;
    Changes changes;

    /// Also while it is parked.
    bool is_suspended() const {
        return row.suspended_at.has_value() || row.status == Status::suspended;
    }
    bool is_parked() const { return row.status == Status::parked; }
    bool acts() const { return row.direction == Direction::act; }
    /// No step begins; those that are claimed, verified or waited for settle.
    bool stands_still() const { return is_parked() || row.compensation_requested; }
};
static_assert(std::is_trivially_destructible_v<SagaState>);

// ------------------------------------------------------------------------------------------- work

/// The live row of (step, direction), whose turn has come.
std::optional<Work> find_work(const SagaState &saga, std::int16_t step_no, Direction direction);
/// The action is claimed, published, verified or waits for its child.
bool is_in_flight(const SagaState &saga, std::int16_t step_no);
/// Whether any action is.
bool has_acts_in_flight(const SagaState &saga);
/// The action waits for the end of its child, also between two waits.
bool waits_for_child(const SagaState &saga, std::int16_t step_no);
/// The step waits for a person: its row is kept, and never due.
bool is_kept(const SagaState &saga, const Work &work);
/// Whether a worker or a service may handle this row now.
bool may_begin(const SagaState &saga, const Work &work);

/// The fields of a new row of work besides its step.
struct NewWork {
    Direction direction;
    std::int64_t due_at;
    std::int32_t attempt = 0; ///< attempts so far, none of which count
    bool falling_back = false;
    std::optional<std::int64_t> started_at{};
    std::optional<std::int64_t> lease{}; ///< of the last attempt, whose late answer counts
    bool verifying = false;
};
/// Makes a step due. True: it has an attempt that ended its process ahead of this turn.
bool add_work(SagaState &saga, const Step &step, const NewWork &work);
/// Keeps for the turn of a step that an attempt ended its process before; false: it has a row.
bool add_crash(SagaState &saga, const Step &step, Direction direction, std::string_view worker);
void remove_work(SagaState &saga, std::int16_t step_no, Direction direction);
/// Makes the deadline of the saga due at its instant.
void add_deadline(SagaState &saga);
void remove_deadline(SagaState &saga);
/// The deadline is moved by the time that it did not run.
void move_deadline(SagaState &saga, std::int64_t by_us);
/// Removes the deadline and the actions that are not in flight.
void remove_idle_acts(SagaState &saga);

/// Keeps the row of a step that waits for a person.
void keep_work(SagaState &saga, const Work &work);
/// Verify is asked about the attempts in doubt, at `due_at`.
void verify_work(SagaState &saga, const Work &work, std::int64_t due_at, std::int32_t attempts);
/// Leaves a row for later, unclaimed. The lease of an attempt in doubt is kept.
void pause_work(SagaState &saga, const Work &work, std::int64_t due_at, bool keep_lease,
                bool verifying);
/// The retry budget is empty: a due retry is due later.
void defer_work(SagaState &saga, const Work &work, std::int64_t due_at);
/// Counts attempts from 1 again, and makes the step due now, or its verify function.
void start_counting_anew(SagaState &saga, const Work &work, bool verifying);
/// As defer_work(), while an ancestor is suspended.
void defer_for_ancestors(SagaState &saga, const Work &work, std::int64_t due_at);
/// Gives the row the attempt, its lease and the instant until which it may take.
void claim_work(SagaState &saga, const Work &attempt, std::int64_t lease_until,
                std::int64_t due_at);
/// Moves the end of a claim.
void extend_work(SagaState &saga, const Work &work, std::int64_t lease_until, std::int64_t due_at);

/// Makes due never what a suspension, a park, a pending compensation or a pause of the definition
/// holds back, and due again as it was what nothing holds back any more.
void arrange_work(SagaState &saga);
/// Unclaimed steps that are due before now + `delay` are due then. The end of a wait for a signal
/// is no attempt, and stays.
void delay_steps(SagaState &saga, std::int64_t delay);

// --------------------------------------------------------------------------------------- progress

/// Of a saga that has begun no attempt: there is nothing to load.
void begin_progress(SagaState &saga);
/// Loads the rows of the table, and adds the changes not written yet.
void require_effects(SagaState &saga);

bool has_acted(SagaState &saga, std::int16_t step_no);
bool has_compensated(SagaState &saga, std::int16_t step_no);
bool was_done_by_fallback(SagaState &saga, std::int16_t step_no);
/// An operator said so while no attempt was in doubt.
bool was_done_by_person(SagaState &saga, std::int16_t step_no);

/// The attempts of an action, or of a compensation, that may have taken effect.
struct Doubt {
    std::int32_t attempt; ///< the latest
    std::optional<std::int64_t> lease;
    bool by_fallback;
    std::int64_t claimed_at;
    std::int64_t since; ///< when the first began: its service may have remembered the key then
};
/// Nothing when the step is done in this direction, or no attempt is in doubt.
std::optional<Doubt> find_doubt(SagaState &saga, std::int16_t step_no,
                                Direction direction = Direction::act);
bool is_in_doubt(SagaState &saga, std::int16_t step_no);
/// The failed attempt under this lease.
std::optional<PastFailure> find_failure(SagaState &saga, std::int16_t step_no, std::int64_t lease);
/// Two texts as an error that is added to an earlier one is written.
std::string_view joined(const SagaState &saga, std::string_view earlier, std::string_view error);
/// Why the last failed attempt of the action failed.
std::string_view why_failed(SagaState &saga, std::int16_t step_no);
/// The number of the last failed attempt in this direction, or 0.
std::int32_t last_failed_attempt(SagaState &saga, std::int16_t step_no, Direction direction);
/// The same of those that failed or were released: the next one has a higher number.
std::int32_t last_ended_attempt(SagaState &saga, std::int16_t step_no, Direction direction);
/// The attempt that was released under this lease.
std::optional<Release> find_release(SagaState &saga, std::int16_t step_no, std::int64_t lease);

void write_effect(SagaState &saga, const Work &work, Value output, Value published,
                  SettledBy settled_by);
void write_failure(SagaState &saga, const Work &work, const Failure &failure);
/// Records the release of an attempt.
void write_release(SagaState &saga, const Work &work, std::string_view reason);
/// Records that none of the step's attempts took effect, or that this one did not.
void settle_outcomes(SagaState &saga, const Settled &settled);

/// Whether a step is left for one more signal of this name.
bool awaits_signal(SagaState &saga, std::string_view name);
/// The oldest signal of this name that no step has taken is given to the step: its payload.
std::optional<Value> take_signal(SagaState &saga, const Step &step);

// ----------------------------------------------------------------------------------------- status

struct StatusChange {
    Status to;
    std::optional<std::int16_t> failed_step{};
    std::optional<std::string_view> error{};
    std::optional<std::int16_t> parked_step{};
    std::optional<Direction> parked_direction{};
};
/// Changes the saga's row. The first failed step and error stay until the saga runs again.
void change_status(SagaState &saga, Direction direction, const StatusChange &change);
/// Writes what has changed of the saga's row beside its status.
void note_row(SagaState &saga);

} // namespace stacksaga::core
