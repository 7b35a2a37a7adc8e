// The background worker: one process, one database, one number. It waits for its latch or the next
// instant, takes the extension lock, sends its heartbeat, and takes one turn.
//
// It never holds up a session that wants it to end: it locks the extension only if it gets the lock
// at once, and ends when DROP DATABASE or its like waits for the sessions of the database. Its
// supervisor starts it again, and a new process waits for those before it counts as a session.
#include "core/ring_settings.hpp"

#include "src/common/extension_lock.hpp"
#include "src/common/loop_guard.hpp"
#include "src/handler/crash_record.hpp"
#include "src/handler/running_handler.hpp"
#include "src/schedule/due_schedules.hpp"
#include "src/worker/crash_charge.hpp"
#include "src/worker/maintenance.hpp"
#include "src/worker/poll.hpp"
#include "src/worker/timekeeper.hpp"
#include "src/worker/worker_process.hpp"

#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/query.hpp"
#include "pg/scope.hpp"
#include "pg/settings.hpp"
#include "pg/transaction.hpp"
#include "src/ring/ownership.hpp"
#include "src/ring/ring_settings.hpp"

extern "C" {
extern PGDLLEXPORT void stacksaga_worker_main(Datum main_arg);
}

namespace stacksaga {

namespace {

// DROP DATABASE and its like wait five seconds for sessions to leave.
constexpr int64 check_interval_us = USECS_PER_SEC;
// Less than that, so that DROP DATABASE works after DROP EXTENSION.
constexpr int64 absence_max_us = 3 * USECS_PER_SEC;
constexpr int64 contended_interval_us = USECS_PER_SEC;
constexpr int64 quiet_us = 2000; // after a turn that found nothing
constexpr int64 report_interval_us = USECS_PER_SEC;

constinit pg::Statement write_stats{
    "INSERT INTO stacksaga.worker AS w"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
    " ON CONFLICT (worker) DO UPDATE SET pid = excluded.pid, started_at = excluded.started_at,"
    " turns = excluded.turns, items = excluded.items, failures = excluded.failures,"
    " last_turn_ms = excluded.last_turn_ms, mode = excluded.mode, deferred = excluded.deferred"};

struct Stats {
    int64 turns = 0;
    int64 items = 0;
    int64 failures = 0;
    int64 deferred = 0;
    int64 last_turn_us = 0;
    int64 busy_us = 0; ///< since the last beat
    bool has_news = false;
};

/// What this process knows. Instants are of the steady clock.
struct Worker {
    WorkerOrder order{};
    MemoryContext memory = nullptr;
    const char *database = nullptr;
    Oid extension = InvalidOid; ///< the one that this process began with

    bool is_absent = false;
    int64 absent_since = 0;

    bool is_registered = false;
    NodeIdentity node{};
    NameData region{};
    NameData cluster{};

    int64 check_at = 0;
    int64 turn_at = 0;
    int64 quiet_until = 0; ///< a wake before this instant waits until then
    int64 beat_at = 0;
    int64 last_beat_at = 0;
    int64 maintain_at = 0;
    int64 report_at = 0;
    Stats stats;
};

constinit Worker self{};
constinit LoopGuard loop_guard{};
constinit LoopGuard
    schedule_guard{}; ///< an error of schedules does not keep turns from being taken
constinit bool is_connected = false;

pg::Coordination coordination() {
    return static_cast<pg::Coordination>(pg::settings.coordination);
}

// ----------------------------------------------------------------------------- coming and going

/// The postmaster must not restart a worker for ever when its database does not exist; it restarts
/// no process that exits with 0. A failed connection is FATAL, so only this callback can know. The
/// code -1 stands for an exit() in a handler, whose 0 must not leave the database without its
/// worker.
void at_exit(int code, Datum) {
    if (!is_connected)
        proc_exit(0);
    if (code == -1)
        _exit(1);
}

[[noreturn]] void leave_for_good() {
    proc_exit(0);
}

/// The postmaster restarts what exits with 1; the launcher restarts whatever ended.
[[noreturn]] void leave_for_now() {
    proc_exit(self.order.supervisor == Supervisor::postmaster ? 1 : 0);
}

/// Removes the node, which does not return under this name, so that its slots are assigned again at
/// once. (A worker that the supervisor restarts has the name, and takes over the slots.) If this
/// fails, the missing heartbeats say the same later.
void give_up_node() {
    if (!self.is_registered)
        return;
    self.is_registered = false;
    loop_guard.guard([] {
        pg::in_transaction([] {
            require_extension();
            pg::commit_locally();
            leave_ring(self.node);
        });
        return true;
    });
}

bool is_database_listed() {
    bool found = false;
    pg::for_each_database([&](const char *name) { found |= strcmp(name, self.database) == 0; });
    return found;
}

void check_still_wanted() {
    if (self.order.number > pg::settings.workers) {
        ereport(LOG, (errmsg("%s of database \"%s\" ends: stacksaga.workers is %d",
                             MyBgworkerEntry->bgw_name, self.database, pg::settings.workers)));
        give_up_node();
        leave_for_good();
    }
    if (self.order.supervisor == Supervisor::launcher && !is_database_listed()) {
        ereport(LOG, (errmsg("%s of database \"%s\" ends: stacksaga.databases no longer lists it",
                             MyBgworkerEntry->bgw_name, self.database)));
        give_up_node();
        leave_for_good();
    }
}

/// Ends this process when another one has its number: a handler may have released the lock on it by
/// pg_advisory_unlock_all(), and a second process may have been started.
void keep_number() {
    if (take_worker_number(self.order.number))
        return;
    ereport(LOG, (errmsg("%s of database \"%s\" ends: another process has its number",
                         MyBgworkerEntry->bgw_name, self.database)));
    abandon_crash_record();
    leave_for_good();
}

void reload_settings() {
    ConfigReloadPending = false;
    ProcessConfigFile(PGC_SIGHUP);
    check_still_wanted();
    if (strcmp(NameStr(self.region), pg::settings.region) != 0 ||
        strcmp(NameStr(self.cluster), pg::settings.cluster) != 0)
        give_up_node();
    self.beat_at = 0;
    self.maintain_at = 0; // something may have another retention now
}

// ----------------------------------------------------------------------------- the extension

/// The database has no extension. The launcher's workers wait for it; others end soon, unless the
/// transaction that started them, which may create it, is still open.
void wait_for_extension() {
    const int64 now = pg::steady_now();
    if (!self.is_absent) {
        self.is_absent = true;
        self.absent_since = now;
        self.is_registered = false;
        if (self.order.number == 1)
            ereport(LOG, (errmsg("database \"%s\" has no extension \"stacksaga\": %s waits for it",
                                 self.database, MyBgworkerEntry->bgw_name)));
    }
    if (self.order.supervisor == Supervisor::launcher)
        return;
    if (!VirtualXactLock(self.order.starter, false))
        self.absent_since = now;
    else if (now - self.absent_since >= absence_max_us) {
        ereport(LOG, (errmsg("%s of database \"%s\" ends: there is no extension \"stacksaga\"",
                             MyBgworkerEntry->bgw_name, self.database)));
        leave_for_good();
    }
}

/// Whether the extension is here. Ends the process when another session waits for the database to
/// have no sessions, and when the extension was re-created: then every cache of this process is
/// stale.
bool has_extension() {
    ExtensionLock state = ExtensionLock::busy;
    Oid extension = InvalidOid;
    bool is_wanted = false;
    pg::in_transaction([&] {
        is_wanted = is_database_wanted();
        if (!is_wanted)
            state = lock_extension(&extension);
        if (state == ExtensionLock::absent)
            wait_for_extension();
    });
    if (is_wanted) {
        ereport(LOG, (errmsg("%s leaves database \"%s\", which is being dropped, copied or altered",
                             MyBgworkerEntry->bgw_name, self.database)));
        leave_for_now();
    }
    if (state != ExtensionLock::held)
        return false;
    self.is_absent = false;
    if (OidIsValid(self.extension) && self.extension != extension) {
        ereport(LOG, (errmsg("%s of database \"%s\" is restarting: the extension was re-created",
                             MyBgworkerEntry->bgw_name, self.database)));
        leave_for_now();
    }
    self.extension = extension;
    return true;
}

// ----------------------------------------------------------------------------- the ring

/// The name of a worker's node: short in the default ring. A node belongs to one ring for ever, so
/// that in another ring it needs another name.
const char *node_name(int32 number) {
    const char *name = psprintf("worker-%d", number);
    if (strcmp(NameStr(self.region), "default") == 0 &&
        strcmp(NameStr(self.cluster), "default") == 0)
        return name;
    return psprintf("%s@%s/%s", name, NameStr(self.region), NameStr(self.cluster));
}

void register_self() {
    namestrcpy(&self.region, pg::settings.region);
    namestrcpy(&self.cluster, pg::settings.cluster);
    pg::in_transaction([&] {
        require_extension();
        pg::commit_locally();
        const int32 ring_id = pg::with_spi([] { return current_ring().ring_id; });
        self.node = {ring_id,
                     register_worker_node(ring_id, node_name(self.order.number), MyProcPid)};
    });
    self.is_registered = true;
    self.last_beat_at = pg::steady_now();
    self.beat_at = 0;
    ereport(LOG, (errmsg("%s works in database \"%s\"", MyBgworkerEntry->bgw_name, self.database)));
}

void report_stats() {
    Stats &stats = self.stats;
    const std::string_view mode =
        coordination() == pg::Coordination::standalone ? "standalone" : "coordinator";
    pg::with_spi([&] {
        write_stats.touch(pg::param(self.order.number), pg::param(MyProcPid),
                          pg::param_time(MyStartTimestamp), pg::param(stats.turns),
                          pg::param(stats.items), pg::param(stats.failures),
                          pg::param(static_cast<double>(stats.last_turn_us) / 1000),
                          pg::param(mode), pg::param(stats.deferred));
    });
    stats.has_news = false;
    self.report_at = pg::steady_now() + report_interval_us;
}

void drop_registration() {
    ereport(LOG, (errmsg("%s of database \"%s\" was superseded as a node and registers again",
                         MyBgworkerEntry->bgw_name, self.database)));
    self.is_registered = false;
}

/// A granted slot is taken over at a heartbeat, so beats are no rarer than a fraction of a window.
int64 beat_interval() {
    constexpr int64 beats_per_window = 8;
    const core::RingSettings settings = read_settings(ring_of_id(self.node.ring_id));
    if (coordination() == pg::Coordination::standalone)
        return settings.heartbeat_interval;
    return std::min(settings.heartbeat_interval, settings.window_length / beats_per_window);
}

bool charge(const CrashRecord &record, int32 number) {
    bool is_charged = false;
    pg::in_transaction([&] {
        require_extension();
        is_charged = pg::with_spi([&] { return charge_crash(record, node_name(number)); });
    });
    return is_charged;
}

/// Charges the crash of the last process of this number.
void charge_predecessor() {
    const bool is_charged = charge(predecessor_record(), self.order.number);
    CRASH_POINT("worker: crash charged, record not erased");
    if (is_charged)
        forget_crash();
}

/// Slots were taken over, maybe from a worker that a handler has ended and that is not back yet:
/// what it ran must not run here as if nothing had happened. It finds its crash charged.
void charge_others() {
    CrashRecord record{};
    for (int32 number = 1; number <= workers_max; ++number)
        if (number != self.order.number && read_crash_record(number, record) &&
            record.kind != Recorded::nothing && BackendPidGetProc(record.pid) == nullptr)
            charge(record, number);
}

/// A heartbeat, and the slots that it brings. Each transaction takes as many as one may.
void beat_and_settle() {
    const int64 now = pg::steady_now();
    const auto elapsed = static_cast<double>(std::max<int64>(1, now - self.last_beat_at));
    const double load = std::min(1.0, static_cast<double>(self.stats.busy_us) / elapsed);
    int64 interval = 0;
    OwnershipChange change{};
    pg::in_transaction([&] {
        require_extension();
        pg::commit_locally();
        beat(self.node, load,
             {.turns = self.stats.turns,
              .items = self.stats.items,
              .failures = self.stats.failures});
        interval = pg::with_spi([] { return beat_interval(); });
        report_stats();
        change = settle_ownership(self.node, coordination() == pg::Coordination::standalone);
    });
    self.stats.busy_us = 0;
    self.last_beat_at = now;
    if (change.superseded) {
        drop_registration();
        return;
    }
    if (change.taken > 0) {
        charge_others();
        self.turn_at = 0;
    }
    if (change.more)
        interval = 0;
    else if (change.contended > 0)
        interval = std::min(interval, contended_interval_us);
    if (change.opens_in > 0)
        interval = std::min(interval, change.opens_in);
    self.beat_at = now + interval;
    ensure_timekeeper();
}

// ----------------------------------------------------------------------------- the turn

/// When to look for work again, after a turn that left nothing to do at once.
int64 rest_after(const TurnOutcome &outcome) {
    const int64 poll = static_cast<int64>(pg::settings.poll_interval) * 1000;
    if (outcome.next_due == DT_NOEND)
        return poll;
    return std::clamp<int64>(outcome.next_due - pg::clock_now(), 0, poll);
}

void take_turn() {
    Stats &stats = self.stats;
    const int64 begun = pg::steady_now();
    pgstat_report_activity(STATE_RUNNING, "stacksaga: a turn");
    const TurnOutcome outcome = run_turn(self.node, node_name(self.order.number), self.memory);
    pgstat_report_activity(STATE_IDLE, nullptr);
    const int64 ended = pg::steady_now();
    ++stats.turns;
    stats.items += outcome.items;
    stats.failures += outcome.failures;
    stats.deferred += outcome.deferred;
    stats.last_turn_us = ended - begun;
    const bool did_something = outcome.items > 0 || outcome.failures > 0 || outcome.deferred > 0;
    stats.has_news = stats.has_news || did_something;
    if (did_something)
        stats.busy_us += ended - begun;
    self.turn_at = outcome.more ? 0 : ended + rest_after(outcome);
    self.quiet_until = did_something ? 0 : ended + quiet_us;
    if (!outcome.more && stats.has_news && ended >= self.report_at)
        pg::in_transaction([] {
            require_extension();
            pg::commit_locally();
            report_stats();
        });
}

/// When to fire schedules, on the steady clock.
int64 schedules_at(int64 now) {
    const int64 pause = schedule_guard.remaining();
    return now + (pause > 0 ? pause : rest_until_schedules());
}

void fire_if_due() {
    if (schedule_guard.remaining() > 0 || !are_schedules_due(self.node))
        return;
    pgstat_report_activity(STATE_RUNNING, "stacksaga: schedules");
    schedule_guard.guard([] {
        if (fire_schedules(self.node) > 0)
            self.turn_at = 0;
        return true;
    });
    pgstat_report_activity(STATE_IDLE, nullptr);
}

/// Sets the next instant first, so that maintenance that fails each time does not displace turns.
void maintain() {
    self.maintain_at = pg::steady_now() + maintenance_interval_us;
    pgstat_report_activity(STATE_RUNNING, "stacksaga: maintenance");
    self.maintain_at = run_maintenance(self.node);
    pgstat_report_activity(STATE_IDLE, nullptr);
}

// ----------------------------------------------------------------------------- the loop

/// Waits until shortly after a turn that found nothing: one turn then answers all wakes of that
/// time.
void keep_quiet() {
    const int64 rest = self.quiet_until - pg::steady_now();
    if (rest > 0)
        WaitLatch(nullptr, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, static_cast<long>((rest + 999) / 1000),
                  pg::wait_event_of_worker());
}

void wait_for_work() {
    const int64 now = pg::steady_now();
    int64 until = self.check_at;
    if (self.is_registered)
        until = std::min({until, self.turn_at, self.beat_at, self.maintain_at, schedules_at(now)});
    if (loop_guard.remaining() > 0)
        until = now + std::min(loop_guard.remaining(), check_interval_us);
    const long ms = static_cast<long>(std::clamp<int64>((until - now + 999) / 1000, 0, 1000));
    const int events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
                                 pg::wait_event_of_worker());
    if ((events & WL_LATCH_SET) != 0) {
        keep_quiet();
        ResetLatch(MyLatch);
        self.turn_at = 0;
    }
    CHECK_FOR_INTERRUPTS();
    if (ConfigReloadPending)
        reload_settings();
}

/// One round; true when it succeeded.
bool work() {
    wait_for_work();
    keep_number();
    const bool is_here = has_extension();
    self.check_at = pg::steady_now() + check_interval_us;
    if (!is_here || loop_guard.remaining() > 0)
        return false;
    if (!self.is_registered)
        register_self();
    if (predecessor_record().kind != Recorded::nothing)
        charge_predecessor();
    if (pg::steady_now() >= self.beat_at)
        beat_and_settle();
    if (self.is_registered)
        fire_if_due();
    if (self.is_registered && pg::steady_now() >= self.turn_at) {
        take_turn();
        keep_number(); // a turn ends by releasing every lock of the session
    }
    if (self.is_registered && pg::steady_now() >= self.maintain_at)
        maintain();
    pgstat_report_stat(false); // autovacuum learns of our writes by this alone
    return true;
}

[[noreturn]] void loop() {
    for (;;) {
        MemoryContextReset(self.memory);
        MemoryContextSwitchTo(self.memory);
        if (!loop_guard.guard([] { return work(); }) && loop_guard.sqlstate() == pg::sg412)
            self.is_registered = false;
    }
}

void connect(Oid database) {
    pqsignal(SIGHUP, SignalHandlerForConfigReload);
    erase_crash_record_on_signals();
    BackgroundWorkerUnblockSignals();
    if (self.order.supervisor == Supervisor::postmaster)
        on_proc_exit(at_exit, 0);
    connect_to_database(database);
    is_connected = true;
    pg::in_transaction([] {
        self.database = MemoryContextStrdup(TopMemoryContext, get_database_name(MyDatabaseId));
        sweep_crash_records();
    });
}

/// Wakes the session that waits in worker_ensure() until the number is taken.
void notify_starter() {
    PGPROC *starter = BackendPidGetProc(MyBgworkerEntry->bgw_notify_pid);
    if (starter != nullptr)
        SetLatch(&starter->procLatch);
}

} // namespace

} // namespace stacksaga

extern "C" void stacksaga_worker_main(Datum main_arg) {
    using namespace stacksaga;
    self.order = worker_order();
    connect(DatumGetObjectId(main_arg));
    keep_number();
    open_crash_record(self.order.number);
    notify_starter();
    check_still_wanted();
    running_handler.enter_top_level();
    self.memory =
        AllocSetContextCreate(TopMemoryContext, "stacksaga worker", ALLOCSET_DEFAULT_SIZES);
    pgstat_report_activity(STATE_IDLE, nullptr);
    loop();
}
