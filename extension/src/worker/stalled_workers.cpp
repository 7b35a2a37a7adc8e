#include "src/worker/stalled_workers.hpp"

#include "pg/settings.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/transaction.hpp"
#include "src/common/extension_lock.hpp"
#include "src/common/wake.hpp"
#include "src/handler/crash_record.hpp"

namespace stacksaga {

namespace {

// Workers note every second that they run.
constexpr int64 shortest_stall_us = 3 * USECS_PER_SEC;

// It has noted in this transaction that it runs. Other transactions are not about items, and hold
// no slots.
constinit pg::Statement is_of_transaction{
    "SELECT FROM pg_catalog.pg_stat_get_activity($1) AS a"
    " WHERE a.backend_type = 'stacksaga worker' AND a.xact_start <= $2",
    pg::Plans::by_statistics};

bool is_in_transaction(int32 pid) {
    PGPROC *process = BackendPidGetProc(pid);
    if (process == nullptr || process->databaseId != MyDatabaseId)
        return false;
    VirtualTransactionId transaction;
    GET_VXID_FROM_PGPROC(transaction, *process);
    return VirtualTransactionIdIsValid(transaction);
}

bool has_stalled(const CrashRecord &record) {
    bool found = false;
    pg::in_transaction([&] {
        require_extension();
        pg::with_spi([&] {
            found = !is_of_transaction.run(pg::param(record.pid), pg::param_time(record.alive_at))
                         .empty();
        });
    });
    return found;
}

/// A stopped process ends when it continues. The signal erases its crash record, so no handler is
/// charged.
void end_process(int32 number, const CrashRecord &record, int64 stalled_us) {
    ereport(LOG,
            (errmsg("worker-%d (process %d) is ended: it has not run for %d s in the middle of a "
                    "transaction",
                    number, record.pid, static_cast<int>(stalled_us / USECS_PER_SEC)),
             errdetail("Its slots cannot be taken over meanwhile."),
             errhint("Find out who stopped it; stacksaga.worker_stall_timeout is %d s.",
                     pg::settings.worker_stall_timeout / 1000)));
    kill(record.pid, SIGTERM);
    kill(record.pid, SIGCONT);
}

} // namespace

void end_stalled_workers() {
    if (pg::settings.worker_stall_timeout == 0)
        return;
    const int64 longest =
        std::max(static_cast<int64>(pg::settings.worker_stall_timeout) * 1000, shortest_stall_us);
    CrashRecord record{};
    for (int32 number = 1; number <= workers_max; ++number) {
        if (!read_crash_record(number, record))
            continue;
        const int64 stalled = GetCurrentTimestamp() - record.alive_at;
        if (stalled >= longest && is_in_transaction(record.pid) && has_stalled(record))
            end_process(number, record, stalled);
    }
}

} // namespace stacksaga
