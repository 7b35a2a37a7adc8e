#include "src/worker/worker_process.hpp"

#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/lock.hpp"
#include "pg/settings.hpp"
#include "pg/statement/function.hpp"

namespace stacksaga {

namespace {

constexpr uint32 starting_number = 0; // workers count from 1

constexpr int restart_seconds = 1;

// A process that checks whether a number is free holds it for an instant.
constexpr int take_tries = 10;
constexpr long take_pause_ms = 10;

LOCKTAG tag_of(Oid database, uint32 number) {
    return pg::lock_tag(pg::LockClass::worker, number, 0, database);
}

// Short, since a session that is in a deadlock with this process waits until it is detected.
constexpr int deadlock_timeout_ms = 100;

} // namespace

void connect_to_database(Oid database) {
    BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
    SetConfigOption("application_name", MyBgworkerEntry->bgw_name, PGC_USERSET, PGC_S_SESSION);
    SetConfigOption("default_transaction_isolation", "read committed", PGC_USERSET, PGC_S_SESSION);
    SetConfigOption("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION);
    if (DeadlockTimeout > deadlock_timeout_ms)
        SetConfigOption("deadlock_timeout", psprintf("%d", deadlock_timeout_ms), PGC_SUSET,
                        PGC_S_SESSION);
}

WorkerOrder worker_order() {
    WorkerOrder order;
    memcpy(&order, MyBgworkerEntry->bgw_extra, sizeof order);
    return order;
}

bool start_worker(Oid database, const WorkerOrder &order, BackgroundWorkerHandle **handle) {
    BackgroundWorker worker{};
    snprintf(worker.bgw_name, BGW_MAXLEN, "stacksaga worker-%d", order.number);
    snprintf(worker.bgw_type, BGW_MAXLEN, "%s", worker_type);
    worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
    worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
    worker.bgw_restart_time =
        order.supervisor == Supervisor::postmaster ? restart_seconds : BGW_NEVER_RESTART;
    snprintf(worker.bgw_library_name, sizeof worker.bgw_library_name, "stacksaga");
    snprintf(worker.bgw_function_name, BGW_MAXLEN, "stacksaga_worker_main");
    worker.bgw_main_arg = ObjectIdGetDatum(database);
    memcpy(worker.bgw_extra, &order, sizeof order);
    worker.bgw_notify_pid = MyProcPid;
    return RegisterDynamicBackgroundWorker(&worker, handle);
}

bool is_worker_running(Oid database, int32 number) {
    const LOCKTAG tag = tag_of(database, static_cast<uint32>(number));
    if (LockAcquire(&tag, ShareLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
        return true;
    LockRelease(&tag, ShareLock, true);
    return false;
}

int32 count_workers(Oid database, int32 last) {
    int32 count = 0;
    for (int32 number = 1; number <= last; ++number)
        count += is_worker_running(database, number) ? 1 : 0;
    return count;
}

bool take_worker_number(int32 number) {
    const LOCKTAG tag = tag_of(MyDatabaseId, static_cast<uint32>(number));
    if (pg::holds_lock(tag, ExclusiveLock))
        return true;
    for (int i = 0; i < take_tries; ++i) {
        if (LockAcquire(&tag, ExclusiveLock, true, true) != LOCKACQUIRE_NOT_AVAIL)
            return true;
        WaitLatch(MyLatch, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, take_pause_ms, PG_WAIT_EXTENSION);
        CHECK_FOR_INTERRUPTS();
    }
    return false;
}

bool lock_starting(Oid database, bool wait) {
    const LOCKTAG tag = tag_of(database, starting_number);
    return LockAcquire(&tag, ExclusiveLock, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

void unlock_starting(Oid database) {
    const LOCKTAG tag = tag_of(database, starting_number);
    LockRelease(&tag, ExclusiveLock, false);
}

// ----------------------------------------------------------------------------------- worker_ensure

namespace {

// A process starts within milliseconds; the caller does not wait for a server that is too busy for
// it.
constexpr int64 patience_us = 10 * USECS_PER_SEC;
constexpr long look_interval_ms = 100;

void check_server() {
    if (RecoveryInProgress())
        ereport(ERROR, (errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
                        errmsg("workers cannot run on a standby"),
                        errdetail("This server is in recovery."),
                        errhint("Call worker_ensure() on the primary, or here after promotion.")));
    if (!IsUnderPostmaster)
        ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                        errmsg("workers cannot run in single-user mode"),
                        errdetail("There is no postmaster to start them."),
                        errhint("Start the server in the usual way.")));
}

[[noreturn]] void raise_full(int32 running) {
    ereport(ERROR,
            (errcode(ERRCODE_INSUFFICIENT_RESOURCES), errmsg("no background worker slot is free"),
             errdetail("%d of %d workers run in this database; max_worker_processes is %d.",
                       running, pg::settings.workers, max_worker_processes),
             errhint("Raise max_worker_processes, which takes a restart of the server, or "
                     "lower stacksaga.workers.")));
}

/// Waits until the worker holds its number, or has ended, or the time is up.
void await_start(int32 number, BackgroundWorkerHandle *handle, int64 deadline) {
    pid_t pid;
    while (!is_worker_running(MyDatabaseId, number) && pg::steady_now() < deadline &&
           GetBackgroundWorkerPid(handle, &pid) != BGWH_STOPPED) {
        WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, look_interval_ms,
                  pg::wait_event_of_worker());
        ResetLatch(MyLatch);
        CHECK_FOR_INTERRUPTS();
    }
}

int32 ensure_workers() {
    const int32 wanted = pg::settings.workers;
    WorkerOrder order{.number = 0, .supervisor = Supervisor::postmaster, .starter = {}};
    GET_VXID_FROM_PGPROC(order.starter, *MyProc);
    std::array<BackgroundWorkerHandle *, workers_max> handles{};
    bool is_full = false;
    for (int32 number = 1; number <= wanted && !is_full; ++number) {
        order.number = number;
        if (!is_worker_running(MyDatabaseId, number))
            is_full = !start_worker(MyDatabaseId, order, &handles[number - 1]);
    }
    const int64 deadline = pg::steady_now() + patience_us;
    for (int32 number = 1; number <= wanted; ++number)
        if (handles[number - 1] != nullptr)
            await_start(number, handles[number - 1], deadline);
    const int32 running = count_workers(MyDatabaseId, wanted);
    if (is_full && running < wanted)
        raise_full(running);
    return running;
}

} // namespace

// worker_ensure() -> integer
STACKSAGA_FUNCTION(worker_ensure) {
    (void)fcinfo;
    check_server();
    lock_starting(MyDatabaseId, true);
    const int32 running = ensure_workers();
    unlock_starting(MyDatabaseId);
    PG_RETURN_INT32(running);
}

} // namespace stacksaga
