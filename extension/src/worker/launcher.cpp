// The launcher is one process of a server that preloads the module. It is connected to no database,
// so it blocks no DROP DATABASE. It starts workers, checks every second that they run, and restarts
// those that have ended: at once at first, and after longer and longer pauses when they keep
// ending.
#include "src/worker/launcher.hpp"

#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/settings.hpp"
#include "pg/statement/transaction.hpp"
#include "src/common/loop_guard.hpp"
#include "src/worker/worker_process.hpp"

extern "C" {
extern PGDLLEXPORT void stacksaga_launcher_main(Datum main_arg);
}

namespace stacksaga {

namespace {

constexpr int restart_seconds = 1;
constexpr long check_interval_ms = 1000;
constexpr int64 first_pause_us = USECS_PER_SEC;
constexpr int64 longest_pause_us = 60 * USECS_PER_SEC;
// A worker that cannot run ends sooner than this.
constexpr int64 good_life_us = USECS_PER_SEC / 2;

/// One worker of a listed database. Instants are of the steady clock.
struct Child {
    BackgroundWorkerHandle *handle; ///< nullptr: it does not run, as far as we know
    int64 started_at;
    int64 start_at; ///< not before
    int64 pause_us; ///< before the next start
};

enum class State : uint8 { unknown, missing, served, full };

struct Listed {
    NameData name;
    Oid found;    ///< the database of that name now, if it can be connected to
    Oid database; ///< the one that the children are for
    State state;  ///< as it was last logged
    Child children[workers_max];
};

struct List {
    Listed *all;
    size_t count;
    std::span<Listed> items() const { return {all, count}; }
};

constinit MemoryContext memory = nullptr;
constinit List listed{};
constinit LoopGuard loop_guard{};

// ----------------------------------------------------------------------------- the list

Listed *find(const List &list, const char *name) {
    for (Listed &item : list.items())
        if (strcmp(NameStr(item.name), name) == 0)
            return &item;
    return nullptr;
}

/// Reads stacksaga.databases again. Databases that stay keep their state; the workers of others end
/// by themselves when they read their settings.
void read_list() {
    size_t names = 0;
    if (!pg::for_each_database([&](const char *) { ++names; })) {
        ereport(LOG, (errmsg("stacksaga.databases is not a list of names: \"%s\"",
                             pg::settings.databases)));
        return;
    }
    List fresh{};
    fresh.all = static_cast<Listed *>(
        MemoryContextAllocZero(memory, sizeof(Listed) * std::max<size_t>(names, 1)));
    pg::for_each_database([&](const char *name) {
        if (find(fresh, name) != nullptr)
            return;
        Listed &item = fresh.all[fresh.count++];
        if (const Listed *known = find(listed, name))
            item = *known;
        else
            namestrcpy(&item.name, name);
    });
    if (listed.all != nullptr)
        pfree(listed.all);
    listed = fresh;
}

/// Looks for the listed databases, in a transaction. A process without a database can read
/// pg_database only in its physical order: an index may need catalogs of a database to be opened.
void find_databases() {
    for (Listed &item : listed.items())
        item.found = InvalidOid;
    Relation catalog = table_open(DatabaseRelationId, AccessShareLock);
    TableScanDesc scan = table_beginscan_catalog(catalog, 0, nullptr);
    while (HeapTuple tuple = heap_getnext(scan, ForwardScanDirection)) {
        auto *form = reinterpret_cast<Form_pg_database>(GETSTRUCT(tuple));
        Listed *item = find(listed, NameStr(form->datname));
        // A limit below -1: DROP DATABASE was interrupted, and nobody can connect.
        if (item != nullptr && form->datallowconn && form->datconnlimit >= -1)
            item->found = form->oid;
    }
    table_endscan(scan);
    table_close(catalog, AccessShareLock);
}

void log_state(Listed &item, State state) {
    if (item.state == state)
        return;
    item.state = state;
    const char *name = NameStr(item.name);
    if (state == State::missing)
        ereport(LOG, (errmsg("stacksaga.databases lists \"%s\", which does not exist or allows no "
                             "connections: the launcher waits for it",
                             name)));
    else if (state == State::full)
        ereport(LOG,
                (errmsg("no background worker slot is free for a worker in database \"%s\"", name),
                 errhint("Raise max_worker_processes, now %d, which takes a restart of the server.",
                         max_worker_processes)));
    else
        ereport(LOG, (errmsg("the launcher serves database \"%s\"", name)));
}

// ----------------------------------------------------------------------------- the workers

/// Notices that a worker has ended, and decides when to start it again.
void look_after(Child &child, int64 now) {
    pid_t pid;
    if (child.handle == nullptr || GetBackgroundWorkerPid(child.handle, &pid) != BGWH_STOPPED)
        return;
    pfree(child.handle);
    child.handle = nullptr;
    const bool lived_well = now - child.started_at >= good_life_us;
    child.pause_us = lived_well ? first_pause_us
                                : std::clamp(2 * child.pause_us, first_pause_us, longest_pause_us);
    child.start_at = now + child.pause_us;
}

/// False when there is no free slot for it.
bool start(Listed &item, int32 number, int64 now) {
    Child &child = item.children[number - 1];
    if (child.handle != nullptr || now < child.start_at || is_worker_running(item.database, number))
        return true;
    const WorkerOrder order{.number = number, .supervisor = Supervisor::launcher, .starter = {}};
    MemoryContext saved = MemoryContextSwitchTo(memory);
    const bool started = start_worker(item.database, order, &child.handle);
    MemoryContextSwitchTo(saved);
    child.started_at = now;
    if (!started)
        child.handle = nullptr;
    return started;
}

void serve(Listed &item) {
    const Oid database = item.found;
    if (database != item.database) {
        // Another database of that name, or none: the workers have ended with the earlier one.
        item.database = database;
        for (Child &child : item.children)
            child = Child{};
    }
    if (!OidIsValid(database)) {
        log_state(item, State::missing);
        return;
    }
    if (!lock_starting(database, false))
        return; // worker_ensure() is at it
    const int64 now = pg::steady_now();
    bool has_slots = true;
    for (int32 number = 1; number <= workers_max && has_slots; ++number) {
        look_after(item.children[number - 1], now);
        if (number <= pg::settings.workers)
            has_slots = start(item, number, now);
    }
    unlock_starting(database);
    log_state(item, has_slots ? State::served : State::full);
}

/// One round; true when it succeeded.
bool work() {
    const long timeout = listed.count == 0 ? -1 : check_interval_ms;
    const int events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | (timeout < 0 ? 0 : WL_TIMEOUT);
    WaitLatch(MyLatch, events, timeout, pg::wait_event_of_worker());
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
    if (ConfigReloadPending) {
        ConfigReloadPending = false;
        ProcessConfigFile(PGC_SIGHUP);
        read_list();
    }
    if (listed.count == 0 || loop_guard.remaining() > 0)
        return false;
    pg::in_transaction([] {
        find_databases();
        for (Listed &item : listed.items())
            serve(item);
    });
    return true;
}

} // namespace

void register_launcher() {
    BackgroundWorker worker{};
    snprintf(worker.bgw_name, BGW_MAXLEN, "stacksaga launcher");
    snprintf(worker.bgw_type, BGW_MAXLEN, "stacksaga launcher");
    worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
    worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
    worker.bgw_restart_time = restart_seconds;
    snprintf(worker.bgw_library_name, sizeof worker.bgw_library_name, "stacksaga");
    snprintf(worker.bgw_function_name, BGW_MAXLEN, "stacksaga_launcher_main");
    RegisterBackgroundWorker(&worker);
}

} // namespace stacksaga

extern "C" void stacksaga_launcher_main(Datum) {
    using namespace stacksaga;
    pqsignal(SIGHUP, SignalHandlerForConfigReload);
    pqsignal(SIGTERM, die);
    BackgroundWorkerUnblockSignals();
    BackgroundWorkerInitializeConnection(nullptr, nullptr, 0);
    memory = AllocSetContextCreate(TopMemoryContext, "stacksaga launcher", ALLOCSET_DEFAULT_SIZES);
    MemoryContext round =
        AllocSetContextCreate(TopMemoryContext, "stacksaga launcher round", ALLOCSET_SMALL_SIZES);
    MemoryContextSwitchTo(round);
    read_list();
    SetLatch(MyLatch);
    for (;;) {
        MemoryContextReset(round);
        MemoryContextSwitchTo(round);
        loop_guard.guard([] { return work(); });
    }
}
