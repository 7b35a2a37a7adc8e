// worker_ensure(): starts the workers of this database that do not run, on servers that preload the
// module and on those that do not.
#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/settings.hpp"
#include "pg/statement/function.hpp"
#include "src/worker/worker_process.hpp"

namespace stacksaga {

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
