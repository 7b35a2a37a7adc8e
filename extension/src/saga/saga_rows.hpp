// The rows of one saga: read and written one at a time, without deciding anything.
#pragma once
#include "core/work_purpose.hpp"
#include "pg/pg.hpp"
#include "pg/query.hpp"
#include "src/saga/definition.hpp"

namespace stacksaga {

/// One saga, locked FOR NO KEY UPDATE until the end of the transaction; read after the lock.
struct Saga {
    pg_uuid_t id;
    int64 token;
    int32 ring_id;
    int32 slot;
    const Definition *definition;
    core::Status status;
    core::Direction direction;
    Datum input;   ///< jsonb
    Datum headers; ///< jsonb
    TimestampTz created_at;
    std::optional<TimestampTz> deadline_at;
    std::optional<int16> parked_step;
    std::optional<core::Direction> parked_direction;
    std::optional<pg_uuid_t> parent_id; ///< the saga that started it as a step
    int16 parent_step;
    TimestampTz now; ///< of this call; one instant for everything that it writes

    bool is_suspended() const { return status == core::Status::suspended; }
};
static_assert(std::is_trivially_destructible_v<Saga>);

/// A live work row of a step.
struct Work {
    int16 step_no;
    core::Direction direction;
    TimestampTz due_at;
    int32 attempt;      ///< attempts so far; while claimed: the number of the attempt
    int32 attempt_base; ///< attempts that no longer count
    std::optional<int64> lease;
    std::optional<TimestampTz> lease_until; ///< set while claimed
    std::optional<TimestampTz> started_at;
    bool verifying;
    bool falling_back; ///< the fallback is tried
    std::optional<std::string_view> worker;

    bool is_claimed() const { return lease_until.has_value(); }
};
static_assert(std::is_trivially_destructible_v<Work>);

/// All inside with_spi.

/// Locks and reads; nullopt when there is no such saga. `skip_locked`: also when it is locked.
/// SG409 while this session runs the handler of a step of the saga: the engine, which called the
/// handler, goes on with what it read before.
std::optional<Saga> lock_saga(const pg_uuid_t &id, TimestampTz now, bool skip_locked = false);
/// As above; SG404 when there is no such saga.
Saga require_saga(const pg_uuid_t &id, TimestampTz now);
/// As above, but a handler may signal its own saga: the engine reads that saga again afterwards.
Saga require_saga_to_signal(const pg_uuid_t &id, TimestampTz now);

/// SG404: the saga's definition has no step of this name.
[[noreturn]] void raise_unknown_step(const Saga &saga, std::string_view name);

/// The work row of (step, direction), read after the saga was locked.
std::optional<Work> find_work(const Saga &saga, int16 step_no, core::Direction direction);
/// Whether work of steps remains in this direction.
bool work_remains(const Saga &saga, core::Direction direction);

/// What a new work row says beyond its step.
struct NewWork {
    core::Direction direction;
    TimestampTz due_at;
    int32 attempt = 0; ///< attempts so far, none of which count
    bool falling_back = false;
    std::optional<TimestampTz> started_at{};
};
/// The queue that a step's work is claimed from; nullopt: a worker runs it.
std::optional<std::string_view> queue_of(const Step &step, bool falling_back);
/// Makes a step due.
void add_work(const Saga &saga, const Step &step, const NewWork &work);
void remove_work(const Saga &saga, int16 step_no, core::Direction direction);

/// The step number of work that concerns the whole saga.
inline constexpr int16 no_step = 0;
/// Makes the deadline of the saga due at its instant.
void add_deadline(const Saga &saga);
/// Locks a row of another purpose than `step`. False when it is not due, and while another saga's
/// transaction is writing it: after that commit it is due still, and what it announces can be read.
bool lock_saga_work(const Saga &saga, core::WorkPurpose purpose, int16 step_no);
void remove_saga_work(const Saga &saga, core::WorkPurpose purpose, int16 step_no = no_step);

/// Removes the deadline and the actions that nobody has claimed, except those that are verified.
void remove_unclaimed_acts(const Saga &saga);

/// Leaves a work row for later, unclaimed. A lease that ran out is kept: its late answer counts.
void pause_work(const Saga &saga, const Work &work, TimestampTz due_at, bool keep_lease,
                bool verifying);
/// A worker waits for what it has begun, until `until`; counts as claimed, under work.lease.
void begin_wait(const Saga &saga, const Work &work, TimestampTz until, std::string_view worker);
/// Counts attempts from 1 again, and makes the step due now.
void start_counting_anew(const Saga &saga, const Work &work);

/// Makes the work of a suspended saga due never, and due again as it was.
void hold_work(const Saga &saga);
void release_work(const Saga &saga);

struct StatusChange {
    core::Status to;
    std::optional<int16> failed_step{};
    std::optional<std::string_view> error{};
    std::optional<int16> parked_step{};
    std::optional<core::Direction> parked_direction{};
};
/// Writes the saga's row, and notifies its parent when it has settled.
void change_status(Saga &saga, core::Direction direction, const StatusChange &change);

/// What has been done and compensated: one flag for each step, by step_no - 1.
struct Progress {
    bool *acted;
    bool *compensated;
    bool *doubtful; ///< may have happened although no marker says so
};
Progress read_progress(const Saga &saga);

/// For each step, by step_no - 1: the number of its last failed attempt in this direction, or 0.
int32 *last_failed_attempts(const Saga &saga, core::Direction direction);
/// The numbers of the steps that have work in this direction, as flags by step_no - 1.
bool *steps_with_work(const Saga &saga, core::Direction direction);
/// The steps whose action is claimed or being verified, in the same form.
bool *steps_in_flight(const Saga &saga);
/// The steps that have work that is never due: it is kept for a late answer or a signal.
bool *steps_kept(const Saga &saga);

void write_effect(const Saga &saga, const Step &step, const Work &work, const pg::Param &output);

struct Failure;
void write_failure(const Saga &saga, const Step &step, const Work &work, const Failure &failure);
/// Whether an action has failed with an unknown outcome.
bool has_unknown_attempt(const Saga &saga, int16 step_no);
/// Records that none of the step's attempts took effect.
void settle_outcomes(const Saga &saga, int16 step_no, core::Direction direction);

/// The oldest signal of this name that no step has taken is given to `step_no`: its payload.
std::optional<Datum> take_signal(const Saga &saga, const Step &step);

} // namespace stacksaga
