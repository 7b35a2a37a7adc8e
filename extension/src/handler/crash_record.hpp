// The crash record: what a worker is running, kept where it survives the process.
//
// Each worker maps a small file and records there the step, the message or the batch of messages
// that it runs: a plain memory write, no system call, nothing that a commit waits for. It erases
// the record when that is done, and when another process asks it to quit: at a shutdown, or after a
// crash elsewhere in the server. So a record that a new process of the same number finds names the
// handler that ended the last one (a segmentation fault, an exit(), the kernel's OOM killer). The
// new process charges that attempt (worker/crash_charge.hpp), or another worker that takes over
// slots before: after three such attempts a saga is parked, and a message has failed for good,
// whatever the policy allows.
//
// The files are in pg_stat_tmp, which every data directory has, which survives a crash, and which
// base backups leave out: a copy of the server must not charge what happened to the original.
#pragma once
#include "core/outbox/partition.hpp"
#include "core/outbox/snapshot_window.hpp"
#include "core/saga/saga_state.hpp"

#include "pg/pg.hpp"

namespace stacksaga {

/// Maximum number of times that a handler may end its process; then it is not tried again.
inline constexpr int32 crashes_max = 3;

/// One attempt of a step.
struct RecordedStep {
    pg_uuid_t saga_id;
    int16 step_no;
    core::Direction direction;
    int32 attempt;             ///< attempts before this one
    bool is_verify = false;    ///< its verify function runs, about the last of them
    int32 verify_attempts = 0; ///< how often it had been asked before
};

/// A message that is handed over alone.
struct RecordedMessage {
    int32 subscription_id;
    int16 partition;
    bool is_retry;    ///< from message_retry; else from the log
    bool is_fallback; ///< it is the fallback that runs
    int32 attempt;
    int64 token;
    int64 tick;
    int64 number;
    core::LogPosition end; ///< behind it, of one of the log
};

/// A batch of messages: how far it reaches in each partition.
struct RecordedBatch {
    struct Part {
        int16 partition;
        core::LogPosition from;
        core::LogPosition until;
    };
    int32 subscription_id;
    int32 count; ///< of the parts that are used
    std::array<Part, core::partitions_max> parts;
};

enum class Recorded : uint32 { nothing, step, message, batch };

/// The content of the file.
struct CrashRecord {
    uint32 magic;
    Recorded kind;    ///< written after what it records and erased before it
    int32 pid;        ///< of the process that recorded it
    bool has_overrun; ///< the process ended itself, since the handler outlived its timeout
    TimestampTz
        timeout_at;       ///< until when the handler may run; 0: it is not running, or has no limit
    TimestampTz since;    ///< when it was recorded
    TimestampTz alive_at; ///< when the process last noted that it runs: about every second
    RecordedStep step;
    RecordedMessage message;
    RecordedBatch batch;
};
static_assert(std::is_trivially_copyable_v<CrashRecord>);

/// The error that the recorded attempt is charged with.
std::string_view error_of(const CrashRecord &record);

/// Handles the signals that ask this process to quit by erasing the record first. To be called
/// before signals are unblocked.
void erase_crash_record_on_signals();

/// Opens the file of worker `number` of this database, which this process holds, and keeps what its
/// predecessor left there. A file that cannot be had is reported in the server's log; the worker
/// works all the same. Its orderly exit removes the file.
void open_crash_record(int32 number);

/// Leaves the file to the process that has the number now.
void abandon_crash_record();

/// Removes the files of databases that are gone. Inside a transaction.
void sweep_crash_records();

/// Records what runs from now on, and nothing.
void record_step(const RecordedStep &step);
void record_verify(int32 verify_attempts); ///< of the step that was recorded
void record_message(const RecordedMessage &message);
void record_batch(const RecordedBatch &batch);
void record_nothing();
/// A transaction that will run items has begun: from now on the process notes that it runs, until
/// the transaction ends.
void record_beginning();
/// Until when the handler that runs may do so; and that it did not end in time, in a signal
/// handler.
void record_timeout(TimestampTz at);
void record_overrun();

/// Whether the record names what a process of this server has been running for `at_least`, and
/// still notes that it runs: one that was stopped does not.
bool has_run_for(const CrashRecord &record, int64 at_least);

/// Whether this worker's predecessor left a record: what it records next should survive it.
bool follows_crash();

/// The predecessor's record: of kind `nothing` where there is nothing to charge, or any more.
const CrashRecord &predecessor_record();

/// The record of worker `number` of this database as it is now, for any caller; false when there
/// is none to be read. A process that has ended may have left it.
bool read_crash_record(int32 number, CrashRecord &record);

/// The crash has been charged, and committed.
void forget_crash();

} // namespace stacksaga
