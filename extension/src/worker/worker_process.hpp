// The processes of the background workers: their numbers, which of them run, and how they are
// started.
//
// Worker n of a database is the process that holds the lock (database, n), to its end. So no list
// is needed, in shared memory or elsewhere: a number whose lock is free has no worker, and two
// processes started for one number notice it by themselves.
#pragma once
#include "src/common/wake.hpp"

namespace stacksaga {

/// The supervisor that starts a worker again when it has ended.
enum class Supervisor : uint8 {
    launcher,   ///< the launcher, for the databases that stacksaga.databases lists
    postmaster, ///< the postmaster, for those that worker_ensure() started
};

/// The parameters of a worker's start.
struct WorkerOrder {
    int32 number;
    Supervisor supervisor;
    VirtualTransactionId starter; ///< the transaction of worker_ensure(), which may yet be open
};
static_assert(sizeof(WorkerOrder) <= BGW_EXTRALEN);
static_assert(std::is_trivially_copyable_v<WorkerOrder>);

/// The number of the process that works beside the workers (timekeeper.hpp).
inline constexpr int32 timekeeper_number = workers_max + 1;

/// Connects this process to the database, as a session of the engine's own: settings that an
/// administrator chose for sessions of people must not change the rows that it sees.
void connect_to_database(Oid database);

/// The order with which this worker process was started.
WorkerOrder worker_order();

/// Registers a worker; the server signals the current process when the worker starts and ends.
/// False when no background worker slot is free. The handle is made in the current memory context.
bool start_worker(Oid database, const WorkerOrder &order, BackgroundWorkerHandle **handle);

/// Whether a worker holds this number.
bool is_worker_running(Oid database, int32 number);

/// How many of the numbers 1 to `last` are held.
int32 count_workers(Oid database, int32 last);

/// Takes a number of this database for the life of the process; false when another process has it.
/// True at once when this process has it already.
bool take_worker_number(int32 number);

/// The lock under which missing workers of a database are started, so that of two callers only one
/// starts them. Held to the end of the transaction, or until it is unlocked.
bool lock_starting(Oid database, bool wait);
void unlock_starting(Oid database);

} // namespace stacksaga
