#include "src/common/saga_tally.hpp"

#include "core/saga/saga_state.hpp"

#include "pg/citus/citus.hpp"
#include "pg/clock.hpp"
#include "pg/lock.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/counter_file.hpp"

namespace stacksaga {

namespace {

constexpr int64 tally_lifetime_us = USECS_PER_DAY;

enum class TallyColumn : uint8_t { status, sagas };
constinit pg::Select<TallyColumn> read_sagas{
    "SELECT status, count(*) AS sagas FROM stacksaga.saga GROUP BY status",
    pg::Plans::by_statistics};

/// Another number each time the server creates its shared memory, also after a crash that the
/// postmaster survives.
uint64 this_server() {
    const auto *header = static_cast<const PGShmemHeader *>(UsedShmemSegAddr);
    return static_cast<uint64>(PgStartTime) ^ (uint64{header->dsm_control} << 32);
}

/// nullptr until somebody has begun to count on this server.
SagaTallies *live_tallies() {
    CounterFile *file = counter_file();
    return file != nullptr && pg_atomic_read_u64(&file->sagas.server) == this_server()
               ? &file->sagas
               : nullptr;
}

Oid saga_table() {
    return get_relname_relid("saga", get_namespace_oid("stacksaga", true));
}

/// Where Citus has distributed sagas, one changes on other nodes than that which has counted it.
bool is_countable() {
    return !pg::is_managed_by_citus(saga_table());
}

std::span<uint64> running_of(SagaTallies &all, const SagaTally &tally) {
    auto *first = reinterpret_cast<uint64 *>(&all + 1);
    const auto place = static_cast<size_t>(&tally - all.tallies.data());
    return {first + place * static_cast<size_t>(GetMaxSnapshotXidCount()), tally.running_count};
}

bool was_read(SagaTallies &all, const SagaTally &tally, uint64 xid) {
    const std::span<uint64> running = running_of(all, tally);
    return xid < tally.next_xid && std::ranges::find(running, xid) == running.end();
}

void add(SagaTally &tally, const SagaCounts &changes) {
    for (size_t i = 0; i < changes.size(); ++i)
        if (changes[i] != 0)
            pg_atomic_fetch_add_u64(&tally.sagas[i], changes[i]);
}

/// Nobody holds a lock in tallies that another server left, so the lock is initialised again.
SagaTallies &own_tallies(SagaTallies &all) {
    if (pg_atomic_read_u64(&all.server) == this_server())
        return all;
    all = SagaTallies{};
    all.shown = -1;
    LWLockInitialize(&all.lock, LWLockNewTrancheId());
    pg_write_barrier();
    // From here on commits add: before the snapshot is taken.
    pg_atomic_write_u64(&all.server, this_server());
    pg_memory_barrier();
    return all;
}

/// Begins the tally that is not shown, and returns the snapshot to read the table with.
Snapshot begin_tally(SagaTallies &all, SagaTally &tally) {
    LWLockAcquire(&all.lock, LW_EXCLUSIVE);
    Snapshot snapshot = GetLatestSnapshot();
    const uint64 next = U64FromFullTransactionId(ReadNextFullTransactionId());
    const auto full = [&](TransactionId xid) {
        return next - (static_cast<uint32>(next) - static_cast<uint32>(xid));
    };
    tally = SagaTally{};
    tally.next_xid = full(snapshot->xmax);
    tally.running_count = snapshot->xcnt;
    std::span<uint64> running = running_of(all, tally);
    for (size_t i = 0; i < running.size(); ++i)
        running[i] = full(snapshot->xip[i]);
    LWLockRelease(&all.lock);
    return snapshot;
}

SagaCounts read_table(Snapshot snapshot) {
    SagaCounts counts{};
    PushActiveSnapshot(snapshot);
    pg::with_spi([&] {
        const auto rows = read_sagas.read();
        for (uint64 i = 0; i < rows.count(); ++i)
            counts[static_cast<size_t>(*core::status_of(rows.text(i, TallyColumn::status)))] =
                rows.int8(i, TallyColumn::sagas);
    });
    PopActiveSnapshot();
    return counts;
}

} // namespace

size_t room_for_running() {
    return 2 * sizeof(uint64) * static_cast<size_t>(GetMaxSnapshotXidCount());
}

void add_to_tallies(const SagaCounts &changes) {
    SagaTallies *all = live_tallies();
    const uint64 xid = U64FromFullTransactionId(GetTopFullTransactionIdIfAny());
    if (all == nullptr || std::ranges::all_of(changes, [](int64 n) { return n == 0; }))
        return;
    LWLockAcquire(&all->lock, LW_SHARED);
    for (SagaTally &tally : all->tallies)
        if (!was_read(*all, tally, xid))
            add(tally, changes);
    LWLockRelease(&all->lock);
}

std::optional<SagaCounts> tallied_sagas() {
    SagaTallies *all = live_tallies();
    if (all == nullptr || !is_countable())
        return std::nullopt;
    std::optional<SagaCounts> result;
    LWLockAcquire(&all->lock, LW_EXCLUSIVE); // a change of status is seen whole
    const int32 shown = all->shown;
    const SagaTally tally = shown < 0 ? SagaTally{} : all->tallies[static_cast<size_t>(shown)];
    LWLockRelease(&all->lock);
    if (!OidIsValid(tally.table) || tally.table != saga_table())
        return std::nullopt;
    result.emplace();
    for (size_t i = 0; i < result->size(); ++i)
        (*result)[i] = std::max<int64>(static_cast<int64>(tally.sagas[i].value), 0);
    return result;
}

bool is_tally_due() {
    if (counter_file() == nullptr || !is_countable())
        return false;
    SagaTallies *all = live_tallies();
    if (all == nullptr || !tallied_sagas())
        return true;
    LWLockAcquire(&all->lock, LW_SHARED);
    const int64 counted_at = all->tallies[static_cast<size_t>(all->shown)].counted_at;
    LWLockRelease(&all->lock);
    const int64 age = pg::steady_now() - counted_at; // negative: of another boot of the machine
    return age < 0 || age > tally_lifetime_us;
}

bool count_sagas() {
    CounterFile *file = counter_file();
    if (file == nullptr || !pg::lock(pg::LockClass::saga_tally, 0, 0, ExclusiveLock, false))
        return false;
    SagaTallies &all = own_tallies(file->sagas);
    const auto other = static_cast<int32>(all.shown == 0 ? 1 : 0);
    SagaTally &tally = all.tallies[static_cast<size_t>(other)];
    const Oid table = saga_table();
    const SagaCounts counts = read_table(begin_tally(all, tally));
    LWLockAcquire(&all.lock, LW_EXCLUSIVE);
    add(tally, counts);
    tally.table = table;
    tally.counted_at = pg::steady_now();
    all.shown = other;
    LWLockRelease(&all.lock);
    return true;
}

// sagas_by_status() -> TABLE(status text, sagas bigint)
STACKSAGA_FUNCTION(sagas_by_status) {
    pg::ResultSet result(fcinfo);
    const std::optional<SagaCounts> counts = tallied_sagas();
    for (size_t i = 0; counts && i < counts->size(); ++i)
        result.add(pg::of(PointerGetDatum(pg::make_text(core::status_names[i]))),
                   pg::of(Int64GetDatum((*counts)[i])));
    return result.finish();
}

// count_sagas() -> boolean
STACKSAGA_FUNCTION(count_sagas) {
    (void)fcinfo;
    PreventCommandDuringRecovery("count_sagas()");
    if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
        ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
                        errmsg("count_sagas() cannot follow a change in its transaction"),
                        errdetail("What the transaction changed would be counted twice."),
                        errhint("Call it in a transaction of its own.")));
    PG_RETURN_BOOL(count_sagas());
}

} // namespace stacksaga
