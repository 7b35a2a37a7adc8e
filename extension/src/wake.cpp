#include "src/wake.hpp"

#include "pg/query.hpp"

namespace stacksaga {

namespace {

constexpr int workers_max = 64; ///< the largest stacksaga.workers
constexpr int64 pids_age_max_us = 5 * USECS_PER_SEC;

constinit pg::Statement select_pids{
    "SELECT DISTINCT pid FROM stacksaga.node WHERE pid IS NOT NULL LIMIT 64"};

struct Workers {
    std::array<int32, workers_max> pids{};
    size_t count = 0;
    TimestampTz read_at = DT_NOBEGIN;
};
constinit Workers workers{};
constinit bool is_wanted = false;
constinit bool is_registered = false;

/// The process with this pid if it still is a backend of this database. A pid that was reused by
/// another backend is woken for nothing.
PGPROC *find_process(int32 pid) {
    PGPROC *process = BackendPidGetProc(pid);
    return process != nullptr && process->databaseId == MyDatabaseId ? process : nullptr;
}

bool is_stale(TimestampTz now) {
    if (now - workers.read_at > pids_age_max_us || workers.read_at > now)
        return true;
    for (size_t i = 0; i < workers.count; ++i)
        if (find_process(workers.pids[i]) == nullptr)
            return true;
    return false;
}

void read_pids(TimestampTz now) {
    pg::Rows rows = select_pids.run();
    workers.count = static_cast<size_t>(rows.count());
    for (size_t i = 0; i < workers.count; ++i)
        workers.pids[i] = rows.int4(i, 0);
    workers.read_at = now;
}

void at_transaction_end(XactEvent event, void *) {
    bool wake = is_wanted && event == XACT_EVENT_COMMIT;
    if (event != XACT_EVENT_PRE_COMMIT)
        is_wanted = false;
    if (!wake)
        return;
    for (size_t i = 0; i < workers.count; ++i) {
        PGPROC *process = find_process(workers.pids[i]);
        if (process != nullptr)
            SetLatch(&process->procLatch);
    }
}

} // namespace

void wake_workers_at_commit() {
    if (is_wanted)
        return;
    if (!is_registered) {
        RegisterXactCallback(at_transaction_end, nullptr);
        is_registered = true;
    }
    // Wall time, not the clock of tests: it only bounds the age of a cache.
    TimestampTz now = GetCurrentTimestamp();
    if (is_stale(now))
        read_pids(now);
    is_wanted = true;
}

} // namespace stacksaga
