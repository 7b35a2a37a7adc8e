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
#include "src/dedupe/expiry.hpp"
#include "src/operate/contradiction.hpp"
#include "src/operate/retention.hpp"
#include "src/ring/node_memory.hpp"
#include "src/worker/saga_counter.hpp"

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
        slots[i] = rows.int4(i, 0);
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
