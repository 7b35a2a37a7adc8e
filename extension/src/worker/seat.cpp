#include "src/worker/seat.hpp"

#include "core/ring/ring_settings.hpp"

#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/crash_point.hpp"
#include "pg/settings.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "pg/statement/transaction.hpp"
#include "src/common/extension_lock.hpp"
#include "src/handler/crash_record.hpp"
#include "src/ring/ownership.hpp"
#include "src/ring/ring_options.hpp"
#include "src/schedule/due_schedules.hpp"
#include "src/worker/crash_charge.hpp"
#include "src/worker/maintenance.hpp"
#include "src/worker/poll.hpp"
#include "src/worker/timekeeper.hpp"

namespace stacksaga {

namespace {

constexpr int64 contended_interval_us = USECS_PER_SEC;
constexpr int64 quiet_us = 2000; // after a turn that found nothing
constexpr int64 report_interval_us = USECS_PER_SEC;

constinit pg::Statement write_stats{
    "INSERT INTO stacksaga.worker AS w"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
    " ON CONFLICT (worker) DO UPDATE SET pid = excluded.pid, started_at = excluded.started_at,"
    " turns = excluded.turns, items = excluded.items, failures = excluded.failures,"
    " last_turn_ms = excluded.last_turn_ms, mode = excluded.mode, deferred = excluded.deferred"};

enum class RingColumn : uint8_t { ring_id, region, cluster };
constinit pg::Select<RingColumn> list_rings{
    "SELECT ring_id, region, cluster FROM stacksaga.ring ORDER BY ring_id"};

pg::Coordination coordination() {
    return static_cast<pg::Coordination>(pg::settings.coordination);
}

/// Removes the node, which does not return under this name, so that its slots are assigned again at
/// once. (A worker that its supervisor restarts keeps the name, and takes over the slots.) If this
/// fails, the node expires by its missing heartbeats.
void give_up_node(Worker &worker, Seat &seat) {
    if (!seat.is_registered)
        return;
    seat.is_registered = false;
    worker.loop_guard.guard([&] {
        pg::in_transaction([&] {
            require_extension();
            pg::commit_locally();
            leave_ring(seat.node);
        });
        return true;
    });
}

Seat *find_seat(const Worker &worker, int32 ring_id) {
    const auto found = std::ranges::find(worker.all_seats(), ring_id, &Seat::ring_id);
    return found == worker.all_seats().end() ? nullptr : &*found;
}

/// Warns once that new work has no ring.
void note_own_ring(Worker &worker, bool is_there) {
    if (!is_there && !worker.lacks_own_ring && worker.order.number == 1)
        ereport(LOG, (errmsg("database \"%s\" has no ring with region \"%s\" and cluster \"%s\"",
                             worker.database, pg::settings.region, pg::settings.cluster),
                      errhint("Correct the settings stacksaga.region and stacksaga.cluster, or "
                              "create the ring with stacksaga.create_ring().")));
    worker.lacks_own_ring = !is_there;
}

/// Makes a seat for each ring that is to be served; the worker keeps the ones that it has.
std::span<Seat> list_seats(Worker &worker) {
    std::span<Seat> seats{};
    pg::with_spi([&] {
        const auto rows = list_rings.run();
        auto *first = static_cast<Seat *>(
            MemoryContextAllocZero(TopMemoryContext, sizeof(Seat) * (rows.count() + 1)));
        size_t count = 0;
        bool has_own = false;
        for (uint64 i = 0; i < rows.count(); ++i) {
            const int32 ring_id = rows.int4(i, RingColumn::ring_id);
            const std::string_view region = rows.text(i, RingColumn::region),
                                   cluster = rows.text(i, RingColumn::cluster);
            has_own = has_own || (region == pg::settings.region && cluster == pg::settings.cluster);
            if (!pg::is_ring_served(region, cluster))
                continue;
            Seat &seat = first[count++];
            if (const Seat *known = find_seat(worker, ring_id))
                seat = *known;
            seat.ring_id = ring_id;
            namestrcpy(&seat.region, pnstrdup(region.data(), region.size()));
            namestrcpy(&seat.cluster, pnstrdup(cluster.data(), cluster.size()));
        }
        note_own_ring(worker, has_own);
        seats = {first, count};
    });
    return seats;
}

/// The name of a worker's node: short in the default ring. A node belongs to one ring for ever, so
/// in another ring it needs another name.
const char *node_name(const Seat &seat, int32 number) {
    const char *name = psprintf("worker-%d", number);
    if (strcmp(NameStr(seat.region), "default") == 0 &&
        strcmp(NameStr(seat.cluster), "default") == 0)
        return name;
    return psprintf("%s@%s/%s", name, NameStr(seat.region), NameStr(seat.cluster));
}

void register_in(Worker &worker, Seat &seat) {
    pg::in_transaction([&] {
        require_extension();
        pg::commit_locally();
        seat.node = {
            seat.ring_id,
            register_worker_node(seat.ring_id, node_name(seat, worker.order.number), MyProcPid)};
    });
    seat.is_registered = true;
    seat.last_beat_at = pg::steady_now();
    seat.beat_at = 0;
    ereport(LOG,
            (errmsg("%s works in database \"%s\"", MyBgworkerEntry->bgw_name, worker.database)));
}

void report_stats(Worker &worker) {
    WorkerStats &stats = worker.stats;
    const std::string_view mode =
        coordination() == pg::Coordination::standalone ? "standalone" : "coordinator";
    pg::with_spi([&] {
        write_stats.touch(pg::param(worker.order.number), pg::param(MyProcPid),
                          pg::param_time(MyStartTimestamp), pg::param(stats.turns),
                          pg::param(stats.items), pg::param(stats.failures),
                          pg::param(static_cast<double>(stats.last_turn_us) / 1000),
                          pg::param(mode), pg::param(stats.deferred));
    });
    stats.has_news = false;
    worker.report_at = pg::steady_now() + report_interval_us;
}

void drop_registration(const Worker &worker, Seat &seat) {
    ereport(LOG, (errmsg("%s of database \"%s\" was superseded as a node and registers again",
                         MyBgworkerEntry->bgw_name, worker.database)));
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

/// Charges the attempt, which the worker ran in one of its rings.
bool charge(const CrashRecord &record, int32 number) {
    bool is_charged = false;
    pg::in_transaction([&] {
        require_extension();
        is_charged =
            pg::with_spi([&] { return charge_crash(record, psprintf("worker-%d", number)); });
    });
    return is_charged;
}

/// Slots were taken over, perhaps from a worker that a handler has ended and that has not restarted
/// yet: its attempt must not run here uncounted. That worker finds its crash charged.
void charge_others(const Worker &worker) {
    CrashRecord record{};
    for (int32 number = 1; number <= workers_max; ++number)
        if (number != worker.order.number && read_crash_record(number, record) &&
            record.kind != Recorded::nothing && BackendPidGetProc(record.pid) == nullptr)
            charge(record, number);
}

/// Sends a heartbeat, and takes over the slots that it grants. Each transaction takes as many as
/// one may.
void beat_and_settle(Worker &worker, Seat &seat) {
    const int64 now = pg::steady_now();
    const auto elapsed = static_cast<double>(std::max<int64>(1, now - seat.last_beat_at));
    const double load = std::min(1.0, static_cast<double>(seat.busy_us) / elapsed);
    int64 interval = 0;
    OwnershipChange change{};
    pg::in_transaction([&] {
        require_extension();
        pg::commit_locally();
        beat(seat.node, load,
             {.turns = worker.stats.turns,
              .items = worker.stats.items,
              .failures = worker.stats.failures});
        interval = pg::with_spi([&] { return beat_interval(seat); });
        report_stats(worker);
        change = settle_ownership(seat.node, coordination() == pg::Coordination::standalone);
    });
    seat.busy_us = 0;
    seat.last_beat_at = now;
    if (change.superseded) {
        drop_registration(worker, seat);
        return;
    }
    if (change.taken > 0) {
        charge_others(worker);
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

/// When to look for work again, after a turn that left nothing to do at once.
int64 rest_after(const TurnOutcome &outcome) {
    const int64 poll = static_cast<int64>(pg::settings.poll_interval) * 1000;
    if (outcome.next_due == DT_NOEND)
        return poll;
    return std::clamp<int64>(outcome.next_due - pg::clock_now(), 0, poll);
}

void take_turn(Worker &worker, Seat &seat) {
    WorkerStats &stats = worker.stats;
    const int64 begun = pg::steady_now();
    pgstat_report_activity(STATE_RUNNING, "stacksaga: a turn");
    const TurnOutcome outcome =
        run_turn(seat.node, node_name(seat, worker.order.number), worker.memory);
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
    worker.quiet_until = did_something ? 0 : ended + quiet_us;
    if (!outcome.more && stats.has_news && ended >= worker.report_at)
        pg::in_transaction([&] {
            require_extension();
            pg::commit_locally();
            report_stats(worker);
        });
}

/// When to fire schedules, on the steady clock.
int64 schedules_at(const Worker &worker, const Seat &seat, int64 now) {
    const int64 pause = worker.schedule_guard.remaining();
    return now + (pause > 0 ? pause : rest_until_schedules(seat.node));
}

void fire_if_due(Worker &worker, Seat &seat) {
    if (worker.schedule_guard.remaining() > 0 || !are_schedules_due(seat.node))
        return;
    pgstat_report_activity(STATE_RUNNING, "stacksaga: schedules");
    worker.schedule_guard.guard([&] {
        if (fire_schedules(seat.node) > 0)
            seat.turn_at = 0;
        return true;
    });
    pgstat_report_activity(STATE_IDLE, nullptr);
}

} // namespace

void read_rings(Worker &worker) {
    constexpr int64 interval_us = 5 * USECS_PER_SEC;
    std::span<Seat> next{};
    pg::in_transaction([&] {
        require_extension();
        next = list_seats(worker);
    });
    for (Seat &seat : worker.all_seats())
        if (std::ranges::find(next, seat.ring_id, &Seat::ring_id) == next.end())
            give_up_node(worker, seat);
    if (worker.seats != nullptr)
        pfree(worker.seats);
    worker.seats = next.data();
    worker.seat_count = next.size();
    worker.rings_at = pg::steady_now() + interval_us;
}

void charge_predecessor(const Worker &worker) {
    if (predecessor_record().kind == Recorded::nothing)
        return;
    const bool is_charged = charge(predecessor_record(), worker.order.number);
    CRASH_POINT("worker: crash charged, record not erased");
    if (is_charged)
        forget_crash();
}

void give_up_nodes(Worker &worker) {
    for (Seat &seat : worker.all_seats())
        give_up_node(worker, seat);
}

int64 due_at(const Worker &worker, const Seat &seat, int64 now) {
    if (!seat.is_registered)
        return now;
    return std::min(
        {seat.turn_at, seat.beat_at, seat.maintain_at, schedules_at(worker, seat, now)});
}

void work_in(Worker &worker, Seat &seat) {
    worker.current = &seat;
    if (!seat.is_registered)
        register_in(worker, seat);
    if (pg::steady_now() >= seat.beat_at)
        beat_and_settle(worker, seat);
    if (seat.is_registered)
        fire_if_due(worker, seat);
    if (seat.is_registered && pg::steady_now() >= seat.turn_at)
        take_turn(worker, seat);
}

void maintain_if_due(Seat &seat) {
    if (!seat.is_registered || pg::steady_now() < seat.maintain_at)
        return;
    // Schedules the next instant first, so that maintenance that always fails does not displace
    // turns.
    seat.maintain_at = pg::steady_now() + maintenance_interval_us;
    pgstat_report_activity(STATE_RUNNING, "stacksaga: maintenance");
    seat.maintain_at = run_maintenance(seat.node);
    pgstat_report_activity(STATE_IDLE, nullptr);
}

} // namespace stacksaga
