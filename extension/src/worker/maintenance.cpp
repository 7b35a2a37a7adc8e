#include "src/worker/maintenance.hpp"

#include "pg/clock.hpp"
#include "pg/random.hpp"
#include "pg/statement/attempt.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/transaction.hpp"
#include "src/common/extension_lock.hpp"
#include "src/common/kept_rows.hpp"
#include "src/common/operator_action.hpp"
#include "src/common/saga_tally.hpp"
#include "src/dedupe/dedupe.hpp"
#include "src/operate/contradiction.hpp"
#include "src/operate/retention.hpp"
#include "src/ring/node.hpp"

extern "C" {
extern PGDLLEXPORT void stacksaga_saga_counter_main(Datum main_arg);
}

namespace stacksaga {

namespace {

constexpr int64 sagas_per_step = 500;
constexpr int64 keys_per_step = 1000;
constexpr int lock_timeout_ms = 100;
// Due work comes first: maintenance takes at most a fifth of a worker's time.
constexpr int64 rest_per_work = 4;
constexpr int64 shortest_rest_us = USECS_PER_SEC / 20;
// How often it forgets the rows that it skipped: slots get other owners, and locks are released.
constexpr int64 memory_us = 3600 * USECS_PER_SEC;

constinit pg::Statement find_slots{
    "SELECT slot FROM stacksaga.slot"
    " WHERE ring_id = $1"
    "   AND (owner = $2 OR owner IN (SELECT incarnation FROM stacksaga.node WHERE pid IS NULL))"};

struct State {
    RetentionMemory retention{};
    int64 fresh_at = 0;
};
constinit NodeMemory<State> memories{};

State &fresh_memory(const NodeIdentity &node, int64 now) {
    State &state = memories.of(node);
    if (now >= state.fresh_at)
        state = State{.retention = {}, .fresh_at = now + memory_us};
    return state;
}

/// The slots of the node, beginning at a random one: a backlog in some of them does not delay the
/// others.
std::span<const int32> slots_of(const NodeIdentity &node) {
    pg::Rows rows = find_slots.run(pg::param(node.ring_id), pg::param(node.incarnation));
    const auto count = static_cast<size_t>(rows.count());
    auto *slots = static_cast<int32 *>(palloc(sizeof(int32) * std::max<size_t>(count, 1)));
    for (size_t i = 0; i < count; ++i)
        slots[i] = rows.int4(i);
    const auto first = static_cast<size_t>(pg::random_fraction() * static_cast<double>(count));
    std::rotate(slots, slots + first, slots + count);
    return {slots, count};
}

/// Runs `step`, which returns how many rows it removed, in a transaction. Returns whether there may
/// be more.
template <class F> bool remove(int64 limit, F &&step) {
    int64 removed = 0;
    pg::in_transaction([&] {
        require_extension();
        pg::commit_locally();
        fire_constraints_from_now_on();
        pg::attempt(lock_timeout_ms, [&] { removed = pg::with_spi(step); });
    });
    return removed >= limit;
}

/// Counts sagas by status where that is due, in a process of its own: reading a table of ten
/// million takes seconds, and a worker must not spend them. When two processes start at once, the
/// second one ends at once. Where no background worker slot is free nothing happens, and the next
/// call tries again. In a transaction.
void ensure_sagas_are_counted() {
    if (!is_tally_due())
        return;
    BackgroundWorker counter{};
    snprintf(counter.bgw_name, BGW_MAXLEN, "stacksaga counter");
    snprintf(counter.bgw_type, BGW_MAXLEN, "stacksaga counter");
    counter.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
    counter.bgw_start_time = BgWorkerStart_RecoveryFinished;
    counter.bgw_restart_time = BGW_NEVER_RESTART;
    snprintf(counter.bgw_library_name, sizeof counter.bgw_library_name, "stacksaga");
    snprintf(counter.bgw_function_name, BGW_MAXLEN, "stacksaga_saga_counter_main");
    counter.bgw_main_arg = ObjectIdGetDatum(MyDatabaseId);
    RegisterDynamicBackgroundWorker(&counter, nullptr);
}

} // namespace

int64 run_maintenance(const NodeIdentity &node) {
    const int64 begun = pg::steady_now();
    State &state = fresh_memory(node, begun);
    pg::in_transaction([] {
        require_extension();
        ensure_sagas_are_counted();
    });
    store_contradictions();
    const bool more_sagas = remove(sagas_per_step, [&] {
        return remove_expired_sagas(node.ring_id, slots_of(node), sagas_per_step, state.retention);
    });
    const bool more_keys = remove(keys_per_step, [] { return remove_expired_keys(keys_per_step); });
    const bool more_actions =
        remove(keys_per_step, [] { return remove_expired_actions(keys_per_step); });
    const int64 ended = pg::steady_now();
    if (more_sagas || more_keys || more_actions)
        return ended + std::max(shortest_rest_us, rest_per_work * (ended - begun));
    return ended + static_cast<int64>(static_cast<double>(maintenance_interval_us) *
                                      (0.8 + 0.4 * pg::random_fraction()));
}

} // namespace stacksaga

extern "C" void stacksaga_saga_counter_main(Datum database) {
    using namespace stacksaga;
    pqsignal(SIGTERM, die);
    BackgroundWorkerUnblockSignals();
    BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(database), InvalidOid, 0);
    SetConfigOption("application_name", MyBgworkerEntry->bgw_name, PGC_USERSET, PGC_S_SESSION);
    pg::in_transaction([] {
        pgstat_report_activity(STATE_RUNNING, "stacksaga: counting sagas");
        require_extension();
        if (is_tally_due())
            count_sagas();
    });
    proc_exit(0);
}
