// A worker's turn: due work of its slots, effects, markers and the fence in one transaction.
//
// A worker finds due work without a lock, as a hint. It then locks the slots of a batch, reads
// their owner again (fence.hpp), and reads every item again under its saga's lock.
// handler/batch.hpp says how items that fail or wait for a lock are handled.
#include "src/worker/poll.hpp"

#include "pg/clock.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/transaction.hpp"
#include "src/common/extension_lock.hpp"
#include "src/common/loop_guard.hpp"
#include "src/definition/definition_pauses.hpp"
#include "src/outbox/delivery/delivery_worker.hpp"
#include "src/ring/node.hpp"
#include "src/saga/held_back.hpp"
#include "src/worker/due_items.hpp"

namespace stacksaga {

namespace {

// How long batches of sagas follow each other before messages are delivered.
constexpr int64 turn_time_max_us = 250 * 1000;
// Of how many sagas a turn holds steps back since their definition is paused, and how many steps it
// brings back whose pause is over.
constexpr int32 page_of_pause = 1000;

constinit NodeMemory<TurnState> memories{};
// For errors of delivery that belong to no subscription: sagas run meanwhile.
constinit LoopGuard delivery_guard{};

TurnState &state_of(const NodeIdentity &node) {
    TurnState &state = memories.of(node);
    if (state.search.node().incarnation != node.incarnation)
        state.search = ItemSearch(node);
    return state;
}

template <class F> void in_transaction(F &&body) {
    pg::in_transaction([&] {
        require_extension();
        pg::with_spi(body);
    });
}

/// Runs batches until the time of a turn is over. Returns whether it ran all items.
bool run_items(TurnState &state, DueItems &items, MemoryContext memory) {
    const int64 end = pg::steady_now() + turn_time_max_us;
    for (bool is_first = true; !items.is_over() && (is_first || pg::steady_now() < end);
         is_first = false) {
        run_batch(state.pace, memory, items);
        items.commit();
    }
    end_turn();
    return items.is_over();
}

/// Messages come first in a turn: the search for sagas probes every slot, and a message would wait
/// for it. An error of delivery that belongs to no subscription (in cutting the log, say) must not
/// keep sagas from running.
DeliveryOutcome deliver(const NodeIdentity &node, MemoryContext memory) {
    DeliveryOutcome delivered{
        .items = 0, .failures = 0, .deferred = 0, .more = false, .next_due = DT_NOEND};
    if (delivery_guard.remaining() == 0)
        delivery_guard.guard([&] {
            delivered = deliver_messages(node, memory);
            return true;
        });
    if (delivery_guard.remaining() > 0)
        delivered.next_due = std::min(delivered.next_due,
                                      pg::time_plus(pg::clock_now(), delivery_guard.remaining()));
    return delivered;
}

/// Holds back steps of definitions that are paused, and brings back those whose pause is over.
/// Returns whether there may be more.
bool heed_pauses(TimestampTz now) {
    int32 count = 0;
    bool is_any_over = false, has_held_back = false;
    in_transaction([&] {
        has_held_back = hold_page_back_of_pause(page_of_pause, now);
        is_any_over = is_any_pause_over(now);
        count = is_any_over ? bring_back_all(page_of_pause, now) : 0;
    });
    if (is_any_over && count == 0)
        in_transaction([&] { forget_pauses(now); });
    return has_held_back || count > 0;
}

} // namespace

TurnOutcome run_turn(const NodeIdentity &node, std::string_view name, MemoryContext memory) {
    TurnState &state = state_of(node);
    state.name = name;
    const DeliveryOutcome delivered = deliver(node, memory);
    const TimestampTz now = pg::clock_now();
    TurnOutcome outcome{.items = delivered.items,
                        .failures = delivered.failures,
                        .deferred = delivered.deferred,
                        .more = delivered.more,
                        .next_due = delivered.next_due};
    outcome.more = heed_pauses(now) || outcome.more;
    FoundItems found{};
    const bool looks_for_locks = state.search.expects_locks();
    in_transaction([&] {
        found = state.search.find(now, memory);
        outcome.next_due = std::min(outcome.next_due, next_end_of_pause(now));
    });
    outcome.next_due = std::min(outcome.next_due, found.next_due);
    DueItems items = due_items(state, found, memory);
    const bool are_run = run_items(state, items, memory);
    const DueItems::Counts &total = items.total;
    outcome.items += total.done;
    outcome.failures += total.failures;
    outcome.deferred += total.deferred;
    outcome.more = outcome.more || total.done > 0 || total.failures > 0 || total.deferred > 0 ||
                   (state.search.expects_locks() && !looks_for_locks);
    state.search.settle(now, found.is_whole && are_run && !total.skipped);
    // Session locks that a handler left would stay, since this session never ends.
    LockReleaseSession(USER_LOCKMETHOD);
    return outcome;
}

} // namespace stacksaga
