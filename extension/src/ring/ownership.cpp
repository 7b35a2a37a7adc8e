#include "core/node_state.hpp"
#include "core/ring_settings.hpp"
#include "core/token.hpp"

#include "src/ring/ownership.hpp"

#include "pg/attempt.hpp"
#include "pg/clock.hpp"
#include "pg/query.hpp"
#include "pg/scope.hpp"
#include "src/ring/fence.hpp"
#include "src/ring/ring_settings.hpp"

namespace stacksaga {

namespace {

constexpr int lock_timeout_ms = 100;
constexpr int windows_missed_before_sweep = 2;
constexpr int sweep_least = 16; // slots a call
constexpr int sweep_share = 8;  // or one slot in so many

/// A slot to take over, and the epoch under which it was found: both are compared under the lock.
struct Candidate {
    int32 slot;
    int64 epoch;
};

struct Candidates {
    Candidate *list;
    size_t count;
    bool cut; ///< there were more
};

struct TakeOver {
    int taken = 0;
    int contended = 0;
};

constinit pg::Statement find_proposed{
    "SELECT slot, epoch FROM stacksaga.slot"
    " WHERE ring_id = $1 AND next_owner = $2 AND next_from <= $3 ORDER BY slot LIMIT $4"};
constinit pg::Statement find_foreign{
    "SELECT slot, epoch FROM stacksaga.slot"
    " WHERE ring_id = $1 AND slot BETWEEN $3 AND $4 AND owner IS DISTINCT FROM $2"
    " ORDER BY slot LIMIT $5"};
constinit pg::Statement list_slots{
    "SELECT slot, epoch, owner FROM stacksaga.slot WHERE ring_id = $1"};
constinit pg::Statement take{
    "UPDATE stacksaga.slot s"
    "   SET owner = $2, epoch = $3, owned_since = $4,"
    "       next_owner = CASE WHEN s.next_owner <> $2 THEN s.next_owner END,"
    "       next_from = CASE WHEN s.next_owner <> $2 THEN s.next_from END,"
    "       next_epoch = CASE WHEN s.next_owner <> $2 THEN s.next_epoch END"
    "  FROM unnest($5, $6) AS seen(slot, epoch)"
    " WHERE s.ring_id = $1 AND s.slot = seen.slot AND s.epoch = seen.epoch"
    " RETURNING s.slot"};
constinit pg::Statement find_window_end{"SELECT window_end FROM stacksaga.token_window"
                                        " WHERE ring_id = $1 AND window_start <= $2 AND agent = ''"
                                        " ORDER BY window_start DESC LIMIT 1"};
constinit pg::Statement find_self{"SELECT kind, draining, registered_at FROM stacksaga.node"
                                  " WHERE ring_id = $1 AND incarnation = $2"};
constinit pg::Statement list_workers{
    "SELECT incarnation, heartbeat_at, draining, pid, checkpoint_at, progress IS NOT NULL"
    "  FROM stacksaga.node"
    " WHERE ring_id = $1 AND kind = 'worker' ORDER BY node COLLATE \"C\""};

/// How many slots one transaction may take: an eighth of the server's lock table, so that several
/// nodes that start at once do not fill it.
int take_limit() {
    constexpr int least = 64;
    return std::max(least, max_locks_per_xact * MaxBackends / 8);
}

Candidates candidates_of_rows(const pg::Rows &rows, int limit) {
    Candidates found{};
    found.list =
        static_cast<Candidate *>(palloc(sizeof(Candidate) * std::max<size_t>(rows.count(), 1)));
    for (uint64 i = 0; i < rows.count(); ++i)
        found.list[found.count++] = {rows.int4(i, 0), rows.int8(i, 1)};
    found.cut = rows.count() == static_cast<uint64>(limit);
    return found;
}

// ------------------------------------------------------------------------------ under the fence

/// Writes the new owner of slots whose exclusive locks are held; those whose epoch is no longer
/// what it was are left alone.
int write_owner(const NodeIdentity &node, std::span<const Candidate> locked) {
    auto *slots = static_cast<int32 *>(palloc(sizeof(int32) * locked.size()));
    auto *epochs = static_cast<int64 *>(palloc(sizeof(int64) * locked.size()));
    for (size_t i = 0; i < locked.size(); ++i) {
        slots[i] = locked[i].slot;
        epochs[i] = locked[i].epoch;
    }
    int64 epoch = raise_epoch(node.ring_id);
    pg::Rows taken = take.run(pg::param(node.ring_id), pg::param(node.incarnation),
                              pg::param(epoch), pg::param_time(pg::clock_now()),
                              pg::param_array(std::span<const int32>{slots, locked.size()}),
                              pg::param_array(std::span<const int64>{epochs, locked.size()}));
    return static_cast<int>(taken.count());
}

/// All that can be locked at once; the others are moved to the front of the list and counted.
TakeOver take_uncontended(const NodeIdentity &node, Candidates &wanted) {
    auto *locked = static_cast<Candidate *>(palloc(sizeof(Candidate) * wanted.count));
    volatile size_t contended = wanted.count;
    volatile int taken = 0;
    bool done = pg::attempt(lock_timeout_ms, [&] {
        size_t got = 0, left = 0;
        for (size_t i = 0; i < wanted.count; ++i) {
            if (lock_slot_exclusively(node.ring_id, wanted.list[i].slot, false))
                locked[got++] = wanted.list[i];
            else
                std::swap(wanted.list[left++], wanted.list[i]);
        }
        if (got > 0)
            taken = write_owner(node, {locked, got});
        contended = left;
    });
    if (!done)
        return {0, static_cast<int>(wanted.count)};
    return {taken, static_cast<int>(contended)};
}

/// One slot that somebody works in, another one each time: waiting in its queue is what gives the
/// taker its turn where works overlap.
int take_contended(const NodeIdentity &node, const Candidates &wanted, int contended) {
    static constinit uint32 turn = 0;
    const Candidate &chosen = wanted.list[turn++ % static_cast<uint32>(contended)];
    volatile int taken = 0;
    pg::attempt(lock_timeout_ms, [&] {
        lock_slot_exclusively(node.ring_id, chosen.slot, true);
        taken = write_owner(node, {&chosen, 1});
    });
    return taken;
}

TakeOver take_over(const NodeIdentity &node, Candidates &wanted) {
    if (wanted.count == 0)
        return {};
    TakeOver result = take_uncontended(node, wanted);
    if (result.taken == 0 && result.contended > 0) {
        result.taken = take_contended(node, wanted, result.contended);
        result.contended -= result.taken;
    }
    return result;
}

// ------------------------------------------------------------------------------ who lives

/// A node that may own slots, of the array that list_workers() fills.
struct Worker {
    int64 incarnation;
    bool is_process; ///< a background worker of this server
    bool is_live;    ///< keeps what it owns
    bool takes;      ///< is given more
};

struct Workers {
    Worker *list;
    size_t count;
    std::span<Worker> all() const { return {list, count}; }
    const Worker *find(int64 incarnation) const {
        for (const Worker &worker : all())
            if (worker.incarnation == incarnation)
                return &worker;
        return nullptr;
    }
};

/// A background worker that ended is known at once; a process of that number in another database is
/// not it.
bool is_running(int32 pid) {
    PGPROC *process = BackendPidGetProc(pid);
    return process != nullptr && process->databaseId == MyDatabaseId;
}

Workers workers_of_ring(const Ring &ring, TimestampTz now) {
    const core::RingSettings settings = read_settings(ring);
    pg::Rows rows = list_workers.run(pg::param(ring.ring_id));
    Workers workers{};
    workers.list =
        static_cast<Worker *>(palloc0(sizeof(Worker) * std::max<size_t>(rows.count(), 1)));
    const core::NodeTiming timing{settings.suspect_after, settings.dead_after};
    for (uint64 i = 0; i < rows.count(); ++i) {
        Worker &worker = workers.list[workers.count++];
        const int64 silent_for = core::silence(rows.time(i, 1), now);
        const bool draining = rows.boolean(i, 2);
        worker.incarnation = rows.int8(i, 0);
        worker.is_process = !rows.is_null(i, 3);
        const bool may_run = !worker.is_process || is_running(rows.int4(i, 3));
        const int64 kept_for = timing.dead_after + settings.rebalance_delay;
        worker.is_live = may_run && silent_for < kept_for;
        const int64 hung_for = rows.boolean(i, 5)
                                   ? core::silence_of_hung(core::silence(rows.time(i, 4), now),
                                                           settings.checkpoint_interval, timing)
                                   : 0;
        worker.takes = may_run && core::node_state(std::max(silent_for, hung_for), draining,
                                                   timing) == core::NodeState::active;
    }
    return workers;
}

// ------------------------------------------------------------------------------ what to take

/// This server's workers share the ring: equal runs of slots in the order of their names.
Candidates share_of_standalone(const Ring &ring, const NodeIdentity &node, TimestampTz now,
                               int limit) {
    Workers workers = workers_of_ring(ring, now);
    int64 count = 0, place = -1;
    for (const Worker &worker : workers.all()) {
        if (!worker.is_process || !worker.takes)
            continue;
        if (worker.incarnation == node.incarnation)
            place = count;
        ++count;
    }
    if (place < 0)
        return {};
    const int64 first = ring.slots * place / count;
    const int64 last = ring.slots * (place + 1) / count - 1;
    return candidates_of_rows(find_foreign.run(pg::param(ring.ring_id), pg::param(node.incarnation),
                                               pg::param(static_cast<int32>(first)),
                                               pg::param(static_cast<int32>(last)),
                                               pg::param(static_cast<int64>(limit))),
                              limit);
}

/// Whether no coordinator has published for some windows: counted from the end of the last window
/// that opened, or from the node's registration where there was none.
bool is_uncoordinated(const Ring &ring, TimestampTz registered_at, TimestampTz now) {
    pg::Rows last = find_window_end.run(pg::param(ring.ring_id), pg::param_time(now));
    TimestampTz since = last.empty() ? registered_at : std::max(last.time(0, 0), registered_at);
    const core::RingSettings settings = read_settings(ring);
    return pg::time_plus(since, windows_missed_before_sweep * settings.window_length) <= now;
}

/// The order in which a node sweeps: another one for each node, so that several do not want the
/// same slots at once.
uint64 sweep_rank(const NodeIdentity &node, int32 slot) {
    const std::array<uint32, 3> words{static_cast<uint32>(node.incarnation),
                                      static_cast<uint32>(node.incarnation >> 32),
                                      static_cast<uint32>(slot)};
    const std::string_view bytes{reinterpret_cast<const char *>(words.data()), sizeof words};
    return core::cassandra_token(bytes).position();
}

/// Slots whose owner is dead or gone, at most as many as bring the node to its equal share.
Candidates slots_to_sweep(const Ring &ring, const NodeIdentity &node, TimestampTz now) {
    Workers workers = workers_of_ring(ring, now);
    const Worker *self = workers.find(node.incarnation);
    if (self == nullptr || !self->takes)
        return {};
    const auto takers =
        std::ranges::count_if(workers.all(), [](const Worker &w) { return w.takes; });
    pg::Rows rows = list_slots.run(pg::param(ring.ring_id));
    Candidates found{};
    found.list =
        static_cast<Candidate *>(palloc(sizeof(Candidate) * std::max<size_t>(rows.count(), 1)));
    int64 room = (ring.slots + takers - 1) / takers;
    for (uint64 i = 0; i < rows.count(); ++i) {
        std::optional<int64> owner = rows.optional_int8(i, 2);
        const Worker *holder = owner ? workers.find(*owner) : nullptr;
        if (holder == self)
            --room;
        else if (holder == nullptr || !holder->is_live)
            found.list[found.count++] = {rows.int4(i, 0), rows.int8(i, 1)};
    }
    std::sort(found.list, found.list + found.count, [&](const Candidate &a, const Candidate &b) {
        return sweep_rank(node, a.slot) < sweep_rank(node, b.slot);
    });
    room = std::min<int64>(room, std::max(sweep_least, ring.slots / sweep_share));
    found.count = std::min(found.count, static_cast<size_t>(std::max<int64>(room, 0)));
    // Slots are locked in ascending order everywhere.
    std::sort(found.list, found.list + found.count,
              [](const Candidate &a, const Candidate &b) { return a.slot < b.slot; });
    return found;
}

OwnershipChange settle(const NodeIdentity &node, bool standalone) {
    pg::Rows self = find_self.run(pg::param(node.ring_id), pg::param(node.incarnation));
    if (self.empty())
        return {.taken = 0, .contended = 0, .superseded = true, .more = false};
    OwnershipChange change{};
    if (self.text(0, 0) != "worker" || self.boolean(0, 1))
        return change; // a draining node is given nothing, an agent deals on what it is given
    const TimestampTz registered_at = self.time(0, 2);
    const TimestampTz now = pg::clock_now();
    const Ring ring = ring_of_id(node.ring_id);
    const int limit = take_limit();
    ensure_slots(ring);
    Candidates wanted =
        standalone
            ? share_of_standalone(ring, node, now, limit)
            : candidates_of_rows(find_proposed.run(pg::param(node.ring_id),
                                                   pg::param(node.incarnation), pg::param_time(now),
                                                   pg::param(static_cast<int64>(limit))),
                                 limit);
    if (!standalone && wanted.count == 0 && is_uncoordinated(ring, registered_at, now))
        wanted = slots_to_sweep(ring, node, now);
    const TakeOver result = take_over(node, wanted);
    change.taken = result.taken;
    change.contended = result.contended;
    change.more = wanted.cut && result.taken > 0;
    return change;
}

} // namespace

OwnershipChange settle_ownership(const NodeIdentity &node, bool standalone) {
    return pg::with_spi([&] { return settle(node, standalone); });
}

} // namespace stacksaga
