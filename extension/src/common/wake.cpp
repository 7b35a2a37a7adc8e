#include "src/common/wake.hpp"

#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/settings.hpp"

namespace stacksaga {

namespace {

// The processes of a server stand in one array in shared memory, preloaded or not. It is searched
// at most once in this interval, and a process that was found is recognised by its pid and
// database. No lock is taken: a wrong reading wakes the wrong process, for nothing.
constexpr int64 search_interval_us = USECS_PER_SEC;

struct Process {
    PGPROC *process;
    int pid;
};

struct Workers {
    std::array<Process, workers_max> list{};
    size_t count = 0;
    int64 searched_at = 0;
};
constinit Workers workers{};
constinit bool is_wanted = false;

bool is_ours(const PGPROC &process, int pid) {
    return process.pid == pid && process.databaseId == MyDatabaseId;
}

bool is_worker(const PGPROC &process) {
    if (process.pid == 0 || process.databaseId != MyDatabaseId ||
        !pg::may_be_background_worker(process))
        return false;
    const char *type = GetBackgroundWorkerTypeByPid(process.pid);
    return type != nullptr && strcmp(type, worker_type) == 0;
}

void search(int64 now) {
    workers.count = 0;
    workers.searched_at = now;
    for (uint32 i = 0; i < ProcGlobal->allProcCount && workers.count < workers_max; ++i) {
        PGPROC *process = &ProcGlobal->allProcs[i];
        if (process != MyProc && is_worker(*process))
            workers.list[workers.count++] = {process, process->pid};
    }
}

bool is_stale(int64 now) {
    if (workers.searched_at == 0 || now - workers.searched_at >= search_interval_us)
        return true;
    return std::any_of(workers.list.begin(), workers.list.begin() + workers.count,
                       [](const Process &p) { return !is_ours(*p.process, p.pid); });
}

void wake() {
    if (!is_wanted)
        return;
    const int64 now = pg::steady_now();
    if (is_stale(now))
        search(now);
    for (const Process &p : std::span{workers.list}.first(workers.count))
        if (is_ours(*p.process, p.pid))
            SetLatch(&p.process->procLatch);
}

} // namespace

/// COMMIT PREPARED wakes nobody: the poll finds its work.
constinit const pg::TransactionUser wake_events{
    .at_commit = wake,
    .at_end = [] { is_wanted = false; },
};

void wake_workers_at_commit(TimestampTz due_at) {
    const int64 poll_us = static_cast<int64>(pg::settings.poll_interval) * 1000;
    if (due_at <= pg::time_plus(pg::clock_now(), poll_us))
        wake_workers_at_commit();
}

void wake_workers_at_commit() {
    is_wanted = true;
}

} // namespace stacksaga
