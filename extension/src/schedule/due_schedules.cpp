#include "src/schedule/due_schedules.hpp"

#include "pg/clock.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/transaction.hpp"
#include "pg/table/relation_change.hpp"
#include "src/common/extension_lock.hpp"
#include "src/common/wake.hpp"
#include "src/ring/node.hpp"
#include "src/schedule/firing.hpp"
#include "src/schedule/schedule.hpp"

namespace stacksaga {

namespace {

// Each run is a subtransaction, and a transaction with more than 64 of them is slower to look at.
constexpr int32 runs_per_batch = 50;
constexpr int64 turn_time_max_us = USECS_PER_SEC / 4;
// Pause before a worker looks again at a schedule that another session has locked.
constexpr int64 contended_interval_us = USECS_PER_SEC;
// How often it looks anyway: its ring may have adopted another one.
constexpr int64 check_interval_us = 60 * USECS_PER_SEC;

struct State {
    TimestampTz due_at = DT_NOBEGIN;
    int64 changes = 0; ///< those that were known when the last batch began
};
constinit NodeMemory<State> memories{};
constinit int64 changes = 1; ///< of schedules
constinit Oid watched_table = InvalidOid;
constinit bool is_watching = false;

Oid find_table() {
    return get_relname_relid("schedule", get_namespace_oid("stacksaga", false));
}

void note_change(Datum, Oid table) {
    if (!OidIsValid(table) || table == watched_table)
        ++changes;
}

void watch() {
    watched_table = find_table();
    if (is_watching)
        return;
    pg::watch_relations(note_change);
    is_watching = true;
}

/// One batch. state.due_at says when the next one is to be; after an error that is now.
Firing fire_batch(const NodeIdentity &node, State &state) {
    Firing fired{};
    TimestampTz next = DT_NOEND;
    pg::in_transaction([&] {
        require_extension();
        watch();
        state.changes = changes;
        fired = pg::with_spi([&] { return fire_due_schedules(node.ring_id, runs_per_batch); });
        next = pg::with_spi([&] { return next_schedule_due(node.ring_id); });
    });
    if (state.changes != changes)
        return fired;
    const TimestampTz now = pg::clock_now();
    if (next <= now && !fired.more)
        next = pg::time_plus(now, contended_interval_us);
    state.due_at = std::min(next, pg::time_plus(now, check_interval_us));
    return fired;
}

} // namespace

bool are_schedules_due(const NodeIdentity &node) {
    return rest_until_schedules(node) == 0;
}

int64 rest_until_schedules(const NodeIdentity &node) {
    const State &state = memories.of(node);
    if (state.changes != changes || state.due_at == DT_NOBEGIN)
        return 0;
    return std::max<int64>(0, state.due_at - pg::clock_now());
}

int64 fire_schedules(const NodeIdentity &node) {
    const int64 end = pg::steady_now() + turn_time_max_us;
    int64 settled = 0;
    for (Firing fired{.settled = 0, .failures = 0, .more = true};
         fired.more && pg::steady_now() < end; settled += fired.settled)
        fired = fire_batch(node, memories.of(node));
    return settled;
}

void announce_schedules() {
    CacheInvalidateRelcacheByRelid(find_table());
    wake_workers_at_commit();
}

} // namespace stacksaga
