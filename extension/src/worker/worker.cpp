// The background worker: one process, one database, one number. It waits for its latch or the next
// instant, takes the extension lock, sends its heartbeat, and takes one turn.
//
// It never blocks a session that wants it to end: it locks the extension only if it gets the lock
// at once, and ends when DROP DATABASE or a similar command waits for the sessions of the database.
// Its supervisor starts it again, and a new process waits for such sessions before it counts as a
// session.

#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/settings.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/transaction.hpp"
#include "src/common/extension_lock.hpp"
#include "src/handler/crash_record.hpp"
#include "src/handler/running_handler.hpp"
#include "src/worker/seat.hpp"
#include "src/worker/worker_process.hpp"

extern "C" {
extern PGDLLEXPORT void stacksaga_worker_main(Datum main_arg);
}

namespace stacksaga {

namespace {

// DROP DATABASE and similar commands wait five seconds for sessions to leave.
constexpr int64 check_interval_us = USECS_PER_SEC;
// Less than that, so that DROP DATABASE works after DROP EXTENSION.
constexpr int64 absence_max_us = 3 * USECS_PER_SEC;

constinit Worker self{};
constinit bool is_connected = false;

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

/// The postmaster restarts processes that exit with 1; the launcher restarts all that ended.
[[noreturn]] void leave_for_now() {
    proc_exit(self.order.supervisor == Supervisor::postmaster ? 1 : 0);
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
        give_up_nodes(self);
        leave_for_good();
    }
    if (self.order.supervisor == Supervisor::launcher && !is_database_listed()) {
        ereport(LOG, (errmsg("%s of database \"%s\" ends: stacksaga.databases no longer lists it",
                             MyBgworkerEntry->bgw_name, self.database)));
        give_up_nodes(self);
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
    self.rings_at = 0;
    for (Seat &seat : self.all_seats()) {
        seat.beat_at = 0;
        seat.maintain_at = 0; // something may have another retention now
    }
}

// ----------------------------------------------------------------------------- the extension

/// The database has no extension. The launcher's workers wait for it; others end soon, unless the
/// transaction that started them, which may create it, is still open.
void wait_for_extension() {
    const int64 now = pg::steady_now();
    if (!self.is_absent) {
        self.is_absent = true;
        self.absent_since = now;
        for (Seat &seat : self.all_seats())
            seat.is_registered = false;
        self.rings_at = 0;
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

/// Whether the extension is installed. Ends the process when another session waits for the database
/// to have no sessions, and when the extension was re-created: then every cache of this process is
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

// ----------------------------------------------------------------------------- the loop

/// Waits until shortly after a turn that found nothing, so that one turn answers all wakes of that
/// time.
void keep_quiet() {
    const int64 rest = self.quiet_until - pg::steady_now();
    if (rest > 0)
        WaitLatch(nullptr, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, static_cast<long>((rest + 999) / 1000),
                  pg::wait_event_of_worker());
}

void wait_for_work() {
    const int64 now = pg::steady_now();
    int64 until = std::min(self.check_at, self.rings_at);
    for (const Seat &seat : self.all_seats())
        until = std::min(until, due_at(self, seat, now));
    if (self.loop_guard.remaining() > 0)
        until = now + std::min(self.loop_guard.remaining(), check_interval_us);
    const long ms = static_cast<long>(std::clamp<int64>((until - now + 999) / 1000, 0, 1000));
    const int events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
                                 pg::wait_event_of_worker());
    if ((events & WL_LATCH_SET) != 0) {
        keep_quiet();
        ResetLatch(MyLatch);
        for (Seat &seat : self.all_seats())
            seat.turn_at = 0;
    }
    CHECK_FOR_INTERRUPTS();
    if (ConfigReloadPending)
        reload_settings();
}

void serve(Seat &seat) {
    work_in(self, seat);
    keep_number();
    maintain_if_due(seat);
}

/// One round; true when it succeeded.
bool work() {
    self.current = nullptr;
    wait_for_work();
    keep_number();
    const bool is_here = has_extension();
    self.check_at = pg::steady_now() + check_interval_us;
    if (!is_here || self.loop_guard.remaining() > 0)
        return false;
    if (pg::steady_now() >= self.rings_at)
        read_rings(self);
    charge_predecessor(self);
    const size_t first = self.first_seat++;
    for (size_t i = 0; i < self.seat_count; ++i)
        serve(self.seats[(first + i) % self.seat_count]);
    pgstat_report_stat(false); // autovacuum learns of our writes by this alone
    return true;
}

[[noreturn]] void loop() {
    for (;;) {
        MemoryContextReset(self.memory);
        MemoryContextSwitchTo(self.memory);
        if (!self.loop_guard.guard([] { return work(); }) &&
            self.loop_guard.sqlstate() == pg::sg412 && self.current != nullptr)
            self.current->is_registered = false;
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
