// The background worker: one process, one database, one number. It waits for its latch or the next
// instant, takes the extension lock, sends its heartbeat, and takes one turn.
//
// It never holds up a session that wants it to end: it locks the extension only if it gets the lock
// at once, and ends when DROP DATABASE or its like waits for the sessions of the database. Its
// supervisor starts it again, and a new process waits for those before it counts as a session.
#include "core/ring_settings.hpp"

#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/query.hpp"
#include "pg/scope.hpp"
#include "pg/settings.hpp"
#include "pg/transaction.hpp"
#include "src/common/extension_lock.hpp"
#include "src/common/loop_guard.hpp"
#include "src/handler/crash_record.hpp"
#include "src/handler/running_handler.hpp"
#include "src/ring/ownership.hpp"
#include "src/ring/ring_settings.hpp"
#include "src/schedule/due_schedules.hpp"
#include "src/worker/crash_charge.hpp"
#include "src/worker/maintenance.hpp"
#include "src/worker/poll.hpp"
#include "src/worker/timekeeper.hpp"
#include "src/worker/worker_process.hpp"

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
    bool has_news = false;
};

/// What this process knows of one ring that it serves.
struct Seat {
    int32 ring_id;
    NameData region;
    NameData cluster;

    bool is_registered;
    NodeIdentity node;

    int64 turn_at;
    int64 beat_at;
    int64 last_beat_at;
    int64 maintain_at;
    int64 busy_us; ///< since the last beat
};
static_assert(std::is_trivially_destructible_v<Seat>);

/// What this process knows. Instants are of the steady clock.
struct Worker {
    WorkerOrder order{};
    MemoryContext memory = nullptr;
    const char *database = nullptr;
    Oid extension = InvalidOid; ///< the one that this process began with

    bool is_absent = false;
    int64 absent_since = 0;

    Seat *seats = nullptr;
    size_t seat_count = 0;
    size_t first_seat = 0;   ///< of the next round: an error in one keeps no other waiting for long
    Seat *current = nullptr; ///< that is worked in
    bool lacks_own_ring = false;

    int64 check_at = 0;
    int64 rings_at = 0;    ///< when to read which rings there are
    int64 quiet_until = 0; ///< a wake before this instant waits until then
    int64 report_at = 0;
    Stats stats;

    std::span<Seat> all_seats() const { return {seats, seat_count}; }
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
void give_up_node(Seat &seat) {
    if (!seat.is_registered)
        return;
    seat.is_registered = false;
    loop_guard.guard([&] {
        pg::in_transaction([&] {
            require_extension();
            pg::commit_locally();
            leave_ring(seat.node);
        });
        return true;
    });
}

void give_up_nodes() {
    for (Seat &seat : self.all_seats())
        give_up_node(seat);
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
        give_up_nodes();
        leave_for_good();
    }
    if (self.order.supervisor == Supervisor::launcher && !is_database_listed()) {
        ereport(LOG, (errmsg("%s of database \"%s\" ends: stacksaga.databases no longer lists it",
                             MyBgworkerEntry->bgw_name, self.database)));
        give_up_nodes();
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

constinit pg::Statement list_rings{
    "SELECT ring_id, region, cluster FROM stacksaga.ring ORDER BY ring_id"};

Seat *find_seat(int32 ring_id) {
    const auto found = std::ranges::find(self.all_seats(), ring_id, &Seat::ring_id);
    return found == self.all_seats().end() ? nullptr : &*found;
}

/// Says once that new work has no ring.
void note_own_ring(bool is_there) {
    if (!is_there && !self.lacks_own_ring && self.order.number == 1)
        ereport(LOG, (errmsg("database \"%s\" has no ring with region \"%s\" and cluster \"%s\"",
                             self.database, pg::settings.region, pg::settings.cluster),
                      errhint("Correct the settings stacksaga.region and stacksaga.cluster, or "
                              "create the ring with stacksaga.create_ring().")));
    self.lacks_own_ring = !is_there;
}

/// Takes a seat in each ring that there is to be served, and gives up the others.
void read_rings() {
    constexpr int64 interval_us = 5 * USECS_PER_SEC;
    Seat *seats = nullptr;
    size_t count = 0;
    pg::in_transaction([&] {
        require_extension();
        pg::with_spi([&] {
            const pg::Rows rows = list_rings.run();
            seats = static_cast<Seat *>(
                MemoryContextAllocZero(TopMemoryContext, sizeof(Seat) * (rows.count() + 1)));
            bool has_own = false;
            for (uint64 i = 0; i < rows.count(); ++i) {
                const std::string_view region = rows.text(i, 1), cluster = rows.text(i, 2);
                has_own =
                    has_own || (region == pg::settings.region && cluster == pg::settings.cluster);
                if (!pg::is_ring_served(region, cluster))
                    continue;
                Seat &seat = seats[count++];
                if (const Seat *known = find_seat(rows.int4(i, 0)))
                    seat = *known;
                seat.ring_id = rows.int4(i, 0);
                namestrcpy(&seat.region,
                           psprintf("%.*s", static_cast<int>(region.size()), region.data()));
                namestrcpy(&seat.cluster,
                           psprintf("%.*s", static_cast<int>(cluster.size()), cluster.data()));
            }
            note_own_ring(has_own);
        });
    });
    const std::span<Seat> next{seats, count};
    for (Seat &seat : self.all_seats())
        if (std::ranges::find(next, seat.ring_id, &Seat::ring_id) == next.end())
            give_up_node(seat);
    if (self.seats != nullptr)
        pfree(self.seats);
    self.seats = seats;
    self.seat_count = count;
    self.rings_at = pg::steady_now() + interval_us;
}

/// The name of a worker's node: short in the default ring. A node belongs to one ring for ever, so
/// that in another ring it needs another name.
const char *node_name(const Seat &seat, int32 number) {
    const char *name = psprintf("worker-%d", number);
    if (strcmp(NameStr(seat.region), "default") == 0 &&
        strcmp(NameStr(seat.cluster), "default") == 0)
        return name;
    return psprintf("%s@%s/%s", name, NameStr(seat.region), NameStr(seat.cluster));
}

void register_in(Seat &seat) {
    pg::in_transaction([&] {
        require_extension();
        pg::commit_locally();
        seat.node = {
            seat.ring_id,
            register_worker_node(seat.ring_id, node_name(seat, self.order.number), MyProcPid)};
    });
    seat.is_registered = true;
    seat.last_beat_at = pg::steady_now();
    seat.beat_at = 0;
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

void drop_registration(Seat &seat) {
    ereport(LOG, (errmsg("%s of database \"%s\" was superseded as a node and registers again",
                         MyBgworkerEntry->bgw_name, self.database)));
    seat.is_registered = false;
}

/// A granted slot is taken over at a heartbeat, so beats are no rarer than a fraction of a window.
int64 beat_interval(const Seat &seat) {
    constexpr int64 beats_per_window = 8;
    const core::RingSettings settings = read_settings(ring_of_id(seat.ring_id));
    if (coordination() == pg::Coordination::standalone)
        return settings.heartbeat_interval;
    return std::min(settings.heartbeat_interval, settings.window_length / beats_per_window);
}

/// The attempt is one of the worker, whichever ring it was in.
bool charge(const CrashRecord &record, int32 number) {
    bool is_charged = false;
    pg::in_transaction([&] {
        require_extension();
        is_charged =
            pg::with_spi([&] { return charge_crash(record, psprintf("worker-%d", number)); });
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
void beat_and_settle(Seat &seat) {
    const int64 now = pg::steady_now();
    const auto elapsed = static_cast<double>(std::max<int64>(1, now - seat.last_beat_at));
    const double load = std::min(1.0, static_cast<double>(seat.busy_us) / elapsed);
    int64 interval = 0;
    OwnershipChange change{};
    pg::in_transaction([&] {
        require_extension();
        pg::commit_locally();
        beat(seat.node, load,
             {.turns = self.stats.turns,
              .items = self.stats.items,
              .failures = self.stats.failures});
        interval = pg::with_spi([&] { return beat_interval(seat); });
        report_stats();
        change = settle_ownership(seat.node, coordination() == pg::Coordination::standalone);
    });
    seat.busy_us = 0;
    seat.last_beat_at = now;
    if (change.superseded) {
        drop_registration(seat);
        return;
    }
    if (change.taken > 0) {
        charge_others();
        seat.turn_at = 0;
    }
    if (change.more)
        interval = 0;
    else if (change.contended > 0)
        interval = std::min(interval, contended_interval_us);
    if (change.opens_in > 0)
        interval = std::min(interval, change.opens_in);
    seat.beat_at = now + interval;
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

void take_turn(Seat &seat) {
    Stats &stats = self.stats;
    const int64 begun = pg::steady_now();
    pgstat_report_activity(STATE_RUNNING, "stacksaga: a turn");
    const TurnOutcome outcome =
        run_turn(seat.node, node_name(seat, self.order.number), self.memory);
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
        seat.busy_us += ended - begun;
    seat.turn_at = outcome.more ? 0 : ended + rest_after(outcome);
    self.quiet_until = did_something ? 0 : ended + quiet_us;
    if (!outcome.more && stats.has_news && ended >= self.report_at)
        pg::in_transaction([] {
            require_extension();
            pg::commit_locally();
            report_stats();
        });
}

/// When to fire schedules, on the steady clock.
int64 schedules_at(const Seat &seat, int64 now) {
    const int64 pause = schedule_guard.remaining();
    return now + (pause > 0 ? pause : rest_until_schedules(seat.node));
}

void fire_if_due(Seat &seat) {
    if (schedule_guard.remaining() > 0 || !are_schedules_due(seat.node))
        return;
    pgstat_report_activity(STATE_RUNNING, "stacksaga: schedules");
    schedule_guard.guard([&] {
        if (fire_schedules(seat.node) > 0)
            seat.turn_at = 0;
        return true;
    });
    pgstat_report_activity(STATE_IDLE, nullptr);
}

/// Sets the next instant first, so that maintenance that fails each time does not displace turns.
void maintain(Seat &seat) {
    seat.maintain_at = pg::steady_now() + maintenance_interval_us;
    pgstat_report_activity(STATE_RUNNING, "stacksaga: maintenance");
    seat.maintain_at = run_maintenance(seat.node);
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
    int64 until = std::min(self.check_at, self.rings_at);
    for (const Seat &seat : self.all_seats())
        until = std::min(until, seat.is_registered
                                    ? std::min({seat.turn_at, seat.beat_at, seat.maintain_at,
                                                schedules_at(seat, now)})
                                    : now);
    if (loop_guard.remaining() > 0)
        until = now + std::min(loop_guard.remaining(), check_interval_us);
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

/// What is due in one ring.
void work_in(Seat &seat) {
    self.current = &seat;
    if (!seat.is_registered)
        register_in(seat);
    if (pg::steady_now() >= seat.beat_at)
        beat_and_settle(seat);
    if (seat.is_registered)
        fire_if_due(seat);
    if (seat.is_registered && pg::steady_now() >= seat.turn_at) {
        take_turn(seat);
        keep_number(); // a turn ends by releasing every lock of the session
    }
    if (seat.is_registered && pg::steady_now() >= seat.maintain_at)
        maintain(seat);
}

/// One round; true when it succeeded.
bool work() {
    self.current = nullptr;
    wait_for_work();
    keep_number();
    const bool is_here = has_extension();
    self.check_at = pg::steady_now() + check_interval_us;
    if (!is_here || loop_guard.remaining() > 0)
        return false;
    if (pg::steady_now() >= self.rings_at)
        read_rings();
    if (predecessor_record().kind != Recorded::nothing)
        charge_predecessor();
    const size_t first = self.first_seat++;
    for (size_t i = 0; i < self.seat_count; ++i)
        work_in(self.seats[(first + i) % self.seat_count]);
    pgstat_report_stat(false); // autovacuum learns of our writes by this alone
    return true;
}

[[noreturn]] void loop() {
    for (;;) {
        MemoryContextReset(self.memory);
        MemoryContextSwitchTo(self.memory);
        if (!loop_guard.guard([] { return work(); }) && loop_guard.sqlstate() == pg::sg412 &&
            self.current != nullptr)
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
