// The engine: what happens to one saga, under its row lock. Everything that changes a saga, be it
// a service's answer, a worker's turn or an operator, goes through these functions.
#pragma once
#include "pg/pg.hpp"
#include "pg/query.hpp"
#include "src/definition.hpp"

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
    std::optional<TimestampTz> deadline_at;
    std::optional<int16> parked_step;
    TimestampTz now; ///< of this call; one instant for everything that it writes
};
static_assert(std::is_trivially_destructible_v<Saga>);

/// A live work row.
struct Work {
    int16 step_no;
    core::Direction direction;
    TimestampTz due_at;
    int32 attempt; ///< attempts so far; while claimed: the number of the attempt
    std::optional<int64> lease;
    std::optional<TimestampTz> lease_until; ///< set while claimed
    std::optional<TimestampTz> started_at;
    bool verifying;
    std::optional<std::string_view> worker;

    bool is_claimed() const { return lease_until.has_value(); }
};

/// The work row of the deadline of a saga.
inline constexpr int16 deadline_step_no = 0;

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
    bool was_never_done = false;           ///< says so of the earlier attempts as well
};

/// All inside with_spi.

/// Locks and reads; nullopt when there is no such saga. `skip_locked`: also when it is locked.
std::optional<Saga> lock_saga(const pg_uuid_t &id, TimestampTz now, bool skip_locked = false);
/// As above; SG404 when there is no such saga.
Saga require_saga(const pg_uuid_t &id, TimestampTz now);

/// The work row of (step, direction), read after the saga was locked.
std::optional<Work> find_work(const Saga &saga, int16 step_no, core::Direction direction);

/// Outputs of the completed steps by name, as jsonb: what `step` is called with.
Datum step_results(const Saga &saga, const Step &step, core::Direction direction);

/// The saga's row has just been inserted: makes its first stage due at `due_at`.
void open_first_stage(const Saga &saga, TimestampTz due_at);

/// Counts an attempt as begun: pending becomes running.
void attempt_begins(Saga &saga);

/// Writes the marker, deletes the work row and starts what follows. The caller has checked that
/// the answer is still wanted.
void step_completed(Saga &saga, const Step &step, const Work &work, const pg::Param &output);

/// Writes the failure and does what the outcome rules say.
void step_failed(Saga &saga, const Step &step, const Work &work, const Failure &failure);

/// A claimed step whose lease or timeout has passed, at an instant not before work.due_at.
void lease_expired(Saga &saga, const Step &step, const Work &work);

/// When an attempt that begins now should be over: the step's timeout, or the saga's deadline where
/// that comes first and is still ahead. A compensation has no deadline but its timeout.
TimestampTz attempt_deadline(const Saga &saga, const Step &step, core::Direction direction);

/// Begins compensation when the deadline of the saga has passed, and returns whether it did. Past
/// an irreversible step a deadline means nothing: there is no way but forward.
bool deadline_passed(Saga &saga);

/// The work row of the deadline is due.
void deadline_due(Saga &saga);

/// The step's function cannot be run, which no retry mends: the saga parks.
void step_is_unusable(Saga &saga, const Step &step, const Work &work, const Failure &failure);

} // namespace stacksaga
