#include "src/worker/timekeeper.hpp"

#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/settings.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "pg/statement/transaction.hpp"
#include "src/common/extension_lock.hpp"
#include "src/common/loop_guard.hpp"
#include "src/common/wake.hpp"
#include "src/handler/crash_record.hpp"
#include "src/ring/node.hpp"
#include "src/schedule/due_schedules.hpp"
#include "src/worker/maintenance.hpp"
#include "src/worker/timed_items.hpp"
#include "src/worker/worker_process.hpp"

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

/// Ends the process of each worker of this database that has not run for
/// stacksaga.worker_stall_timeout in the middle of a transaction, because it was stopped or its
/// machine does not schedule it. Such a worker keeps the slots of its batch, which no node can take
/// over. Outside of a transaction.
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

constexpr int64 look_interval_us = USECS_PER_SEC / 2;
constexpr int64 handler_is_slow_us = USECS_PER_SEC;
// A worker that ended is restarted, or its database is being dropped.
constexpr int64 idle_max_us = 10 * USECS_PER_SEC;

enum class NodeColumn : uint8_t { node, ring_id, incarnation };
constinit pg::Select<NodeColumn> find_nodes{
    "SELECT node, ring_id, incarnation FROM stacksaga.node WHERE pid = $1",
    pg::Plans::by_statistics};

struct BusyNode {
    NodeIdentity identity;
    const char *name;
};
struct BusyNodes {
    BusyNode *list;
    size_t count;
};

/// The state of this process. Instants are of the steady clock.
struct Timekeeper {
    MemoryContext memory = nullptr;
    Oid extension = InvalidOid;
    int64 worker_seen_at = 0;
    int64 look_at = 0;
    int64 maintain_at = 0;
};
constinit Timekeeper self{};
constinit LoopGuard loop_guard{};

/// One of its duties: an error in one of them keeps no other from being done.
template <class F> void guarded(LoopGuard &guard, F &&part) {
    if (guard.remaining() > 0)
        return;
    guard.guard([&] {
        part();
        return true;
    });
}

/// Whether the extension is installed. Ends the process when the extension was dropped or
/// re-created, and when another session waits for the database to have no sessions: a worker starts
/// it again.
bool has_extension() {
    ExtensionLock state = ExtensionLock::busy;
    Oid extension = InvalidOid;
    bool is_wanted = false;
    pg::in_transaction([&] {
        is_wanted = is_database_wanted();
        if (!is_wanted)
            state = lock_extension(&extension);
    });
    if (is_wanted || state == ExtensionLock::absent ||
        (OidIsValid(self.extension) && OidIsValid(extension) && self.extension != extension))
        proc_exit(0);
    if (state == ExtensionLock::held)
        self.extension = extension;
    return state == ExtensionLock::held;
}

void leave_if_alone(int64 now) {
    if (count_workers(MyDatabaseId, workers_max) > 0)
        self.worker_seen_at = now;
    else if (pg::settings.workers == 0 || now - self.worker_seen_at > idle_max_us)
        proc_exit(0);
}

/// The nodes of the workers that have been in a handler for long.
BusyNodes busy_nodes() {
    BusyNodes busy{.list = nullptr, .count = 0};
    CrashRecord record{};
    for (int32 number = 1; number <= workers_max; ++number) {
        if (!read_crash_record(number, record) || !has_run_for(record, handler_is_slow_us))
            continue;
        pg::in_transaction([&] {
            require_extension();
            pg::with_spi([&] {
                const auto rows = find_nodes.run(pg::param(record.pid));
                const size_t count = busy.count + static_cast<size_t>(rows.count());
                MemoryContext before = MemoryContextSwitchTo(self.memory);
                auto *list = static_cast<BusyNode *>(palloc(sizeof(BusyNode) * (count + 1)));
                std::copy_n(busy.list, busy.count, list);
                for (uint64 i = 0; i < rows.count(); ++i) {
                    const std::string_view name = rows.text(i, NodeColumn::node);
                    list[busy.count + i] = {
                        .identity = {.ring_id = rows.int4(i, NodeColumn::ring_id),
                                     .incarnation = rows.int8(i, NodeColumn::incarnation)},
                        .name = pnstrdup(name.data(), name.size())};
                }
                MemoryContextSwitchTo(before);
                busy = {.list = list, .count = count};
            });
        });
    }
    return busy;
}

void act_for(const BusyNode &node, bool maintains) {
    static constinit LoopGuard beats{}, schedules{}, items{}, maintenance{};
    guarded(beats, [&] {
        pg::in_transaction([&] {
            require_extension();
            pg::commit_locally();
            beat_for(node.identity);
        });
    });
    guarded(schedules, [&] {
        if (are_schedules_due(node.identity))
            fire_schedules(node.identity);
    });
    guarded(items, [&] {
        const int64 rest = run_timed_items(node.identity, node.name, self.memory);
        self.look_at = std::max(self.look_at, pg::steady_now() + rest);
    });
    if (maintains)
        guarded(maintenance, [&] {
            self.maintain_at = std::min(self.maintain_at, run_maintenance(node.identity));
        });
}

/// One round; true when it succeeded.
bool work() {
    const int64 now = pg::steady_now();
    const int64 rest = std::clamp<int64>(self.look_at - now, 0, look_interval_us);
    WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
              static_cast<long>((rest + 999) / 1000), pg::wait_event_of_worker());
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
    if (ConfigReloadPending) {
        ConfigReloadPending = false;
        ProcessConfigFile(PGC_SIGHUP);
    }
    self.look_at = std::max(self.look_at, pg::steady_now() + look_interval_us);
    leave_if_alone(pg::steady_now());
    if (!has_extension() || loop_guard.remaining() > 0)
        return false;
    static constinit LoopGuard stalled{};
    guarded(stalled, end_stalled_workers);
    const BusyNodes busy = busy_nodes();
    const bool maintains = pg::steady_now() >= self.maintain_at;
    if (maintains)
        self.maintain_at = pg::steady_now() + maintenance_interval_us;
    for (size_t i = 0; i < busy.count; ++i)
        act_for(busy.list[i], maintains);
    pgstat_report_stat(false); // autovacuum learns of our writes by this alone
    return true;
}

} // namespace

void ensure_timekeeper() {
    if (is_worker_running(MyDatabaseId, timekeeper_number))
        return;
    BackgroundWorker process{};
    snprintf(process.bgw_name, BGW_MAXLEN, "stacksaga timekeeper");
    snprintf(process.bgw_type, BGW_MAXLEN, "stacksaga timekeeper");
    process.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
    process.bgw_start_time = BgWorkerStart_RecoveryFinished;
    process.bgw_restart_time = BGW_NEVER_RESTART;
    snprintf(process.bgw_library_name, sizeof process.bgw_library_name, "stacksaga");
    snprintf(process.bgw_function_name, BGW_MAXLEN, "stacksaga_timekeeper_main");
    process.bgw_main_arg = ObjectIdGetDatum(MyDatabaseId);
    RegisterDynamicBackgroundWorker(&process, nullptr);
}

} // namespace stacksaga

extern "C" void stacksaga_timekeeper_main(Datum database) {
    using namespace stacksaga;
    pqsignal(SIGHUP, SignalHandlerForConfigReload);
    pqsignal(SIGTERM, die);
    BackgroundWorkerUnblockSignals();
    connect_to_database(DatumGetObjectId(database));
    if (!take_worker_number(timekeeper_number))
        proc_exit(0); // of two that start at once the second one ends
    self.memory =
        AllocSetContextCreate(TopMemoryContext, "stacksaga timekeeper", ALLOCSET_DEFAULT_SIZES);
    self.worker_seen_at = self.look_at = pg::steady_now();
    self.maintain_at = self.look_at + maintenance_interval_us;
    pgstat_report_activity(STATE_IDLE, nullptr);
    for (;;) {
        MemoryContextReset(self.memory);
        MemoryContextSwitchTo(self.memory);
        loop_guard.guard([] { return work(); });
    }
}
