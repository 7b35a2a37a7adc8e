// A worker's turn: due work of its slots, effects, markers and the fence in one transaction.
//
// A worker finds due work without a lock, as a hint. It then locks the slots of a batch, reads
// their owner again (fence.hpp), and reads every item again under its saga's lock.
// handler/batch.hpp says what happens to items that fail or meet a lock.
#include "src/worker/poll.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/query.hpp"
#include "pg/scope.hpp"
#include "pg/settings.hpp"
#include "pg/transaction.hpp"
#include "src/common/extension_lock.hpp"
#include "src/common/loop_guard.hpp"
#include "src/handler/batch.hpp"
#include "src/outbox/delivery_worker.hpp"
#include "src/ring/fence.hpp"
#include "src/ring/retry_budget.hpp"
#include "src/saga/tables.hpp"
#include "src/saga/work_item.hpp"
#include "src/worker/item_search.hpp"
#include "src/worker/postpone.hpp"

namespace stacksaga {

namespace {

// So long batches follow each other before messages are delivered.
constexpr int64 turn_time_max_us = 250 * 1000;

// Whose budget the retry of a saga's step is asked of.
constinit pg::Statement find_definition{
    "SELECT definition_id FROM stacksaga.saga"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

/// What a worker remembers between turns.
struct TurnState {
    ItemSearch search{{}};
    std::string_view name{}; ///< the caller's, for this turn
    BatchPace pace{};
};
constinit TurnState state{};
// Errors of delivery that belong to no subscription: sagas run meanwhile.
constinit LoopGuard delivery_guard{};

/// Items of a turn, for run_batch(): each batch takes those that the one before left.
///
/// The steps of a saga that follow each other at once run one behind the other. Each is an item of
/// its own: the place in the list stays, and `ahead` counts.
struct DueItems {
    static constexpr bool can_postpone = true;
    static constexpr bool goes_on_after_failure = true;

    struct Counts {
        int32 done;
        int32 failures;
        int32 deferred;
        bool skipped; ///< something due was left: the slot is not ours, or the saga is locked
    };

    void open(int32 room, bool is_guarded);
    bool has_next();
    int64 id() const { return static_cast<int64>(next) << 32 | ahead; }
    static int32 weight() { return 1; }
    void run();
    void keep();
    bool charge(const HandlerError &error);
    void postpone();
    void close();
    void commit();

    std::span<FoundItem> found;
    uint64 *first_attempts; ///< the budgets of those that were done; room for those of a batch
    std::optional<double> fraction{};
    int32 first = 0; ///< of this batch
    Counts total{};
    // Of this try.
    int32 next = 0;
    int32 end = 0;
    int32 steps_left = 0;
    RunAhead run_ahead = RunAhead::no;
    bool *owned = nullptr; ///< from `first` on
    int32 first_attempt_count = 0;
    Counts counts{};
    // The item whose turn it is: `next`, or what follows it.
    DueItem item{};
    int32 ahead = 0;      ///< how many of its saga ran before
    Saga *saga = nullptr; ///< then as they left it; nullptr: it is written, and to be read again

    // Of the item that ran.
    ItemOutcome outcome{};
    bool is_deferred = false;

private:
    void note(const ItemOutcome &kept);
    int64 ask_budget(const DueItem &retry);
    bool is_found_deferred();
    void go_on();
};
static_assert(std::is_trivially_destructible_v<DueItems>);

void restart_state(const NodeIdentity &node) {
    const NodeIdentity &before = state.search.node();
    if (before.ring_id != node.ring_id || before.incarnation != node.incarnation)
        state = TurnState{.search = ItemSearch(node)};
}

/// Whether this worker holds the slot of each item, under locks that last to the end of the
/// transaction.
bool *lock_slots_of(std::span<const FoundItem> items) {
    auto *slots = static_cast<int32 *>(palloc(sizeof(int32) * items.size()));
    for (size_t i = 0; i < items.size(); ++i)
        slots[i] = items[i].item.slot;
    std::sort(slots, slots + items.size());
    auto distinct = static_cast<size_t>(std::unique(slots, slots + items.size()) - slots);
    auto *slot_owned = static_cast<bool *>(palloc0(sizeof(bool) * distinct));
    CRASH_POINT("worker: before the slots");
    lock_slots(state.search.node(), {slots, distinct}, {slot_owned, distinct});
    CRASH_POINT("worker: slots locked");
    auto *owned = static_cast<bool *>(palloc0(sizeof(bool) * items.size()));
    for (size_t i = 0; i < items.size(); ++i)
        owned[i] =
            slot_owned[std::lower_bound(slots, slots + distinct, items[i].item.slot) - slots];
    return owned;
}

void DueItems::open(int32 room, bool is_guarded) {
    next = first;
    end = std::min(first + room, static_cast<int32>(found.size()));
    steps_left = room;
    if (room == 1)
        run_ahead = RunAhead::no;
    else
        run_ahead = is_guarded ? RunAhead::written : RunAhead::yes;
    first_attempt_count = 0;
    counts = {};
    saga = nullptr;
    ahead = 0;
    for (pg::Table *table : saga_tables)
        static_cast<void>(table->keep_open());
    owned =
        lock_slots_of(found.subspan(static_cast<size_t>(first), static_cast<size_t>(end - first)));
}

bool DueItems::has_next() {
    if (steps_left == 0 || ahead > 0)
        return steps_left > 0;
    for (; next < end && !owned[next - first]; ++next)
        counts.skipped = true;
    if (next == end)
        return false;
    item = found[static_cast<size_t>(next)].item;
    return true;
}

void DueItems::note(const ItemOutcome &kept) {
    if (kept.first_attempt)
        first_attempts[first_attempt_count++] = *kept.first_attempt;
}

/// How long its definition's budget defers a retry.
int64 DueItems::ask_budget(const DueItem &retry) {
    const int64 token = core::token_of_uuid(retry.saga_id.data).value();
    pg::Rows rows = find_definition.run(pg::param(retry.saga_id), pg::param(token));
    if (rows.empty())
        return 0;
    if (!fraction)
        fraction = fraction_of(state.search.node());
    return defer_retry(budget_of_definition(rows.int4(0, 0)), *fraction).value_or(0);
}

/// Whether the item is a retry that finds the budget empty. It is asked once, however often the
/// item is run again.
bool DueItems::is_found_deferred() {
    FoundItem &at = found[static_cast<size_t>(next)];
    if (!at.is_retry)
        return false;
    if (!at.deferral)
        at.deferral = ask_budget(at.item);
    return *at.deferral > 0;
}

void DueItems::run() {
    outcome = {};
    is_deferred = false;
    if (ahead == 0 && is_found_deferred()) {
        is_deferred = postpone_retry(item.saga_id, item.step_no, item.direction,
                                     *found[static_cast<size_t>(next)].deferral);
        return;
    }
    if (item.purpose == core::WorkPurpose::step)
        record_step({item.saga_id, item.step_no, item.direction, item.attempt});
    CRASH_POINT("worker: step recorded");
    // A subtransaction that is undone leaves the saga as it should not be.
    Saga *current = std::exchange(saga, nullptr);
    outcome = current != nullptr ? run_next(*current, item, state.name, run_ahead)
                                 : run_item(item, state.name, run_ahead);
    CRASH_POINT("worker: step done, record not erased");
    record_nothing();
}

/// To the next item of the list.
void DueItems::go_on() {
    saga = nullptr;
    ahead = 0;
    ++next;
    --steps_left;
}

void DueItems::keep() {
    counts.deferred += is_deferred ? 1 : 0;
    counts.done += outcome.is_done ? 1 : 0;
    counts.skipped = counts.skipped || !(outcome.is_done || outcome.is_gone || is_deferred);
    note(outcome);
    if (outcome.saga == nullptr) {
        go_on();
        return;
    }
    saga = outcome.saga;
    item = outcome.next;
    ++ahead;
    --steps_left;
}

bool DueItems::charge(const HandlerError &error) {
    CRASH_POINT("worker: before a failure is charged");
    const ItemOutcome failed = saga != nullptr ? fail_next(*saga, item, state.name, error)
                                               : fail_item(item, state.name, error);
    if (!failed.is_done)
        return false;
    ++counts.failures;
    note(failed);
    go_on();
    return true;
}

void DueItems::postpone() {
    if (saga != nullptr)
        write_saga(*saga);
    postpone_item(item);
    ++counts.failures;
    go_on();
}

void DueItems::close() {
    if (saga != nullptr)
        write_saga(*saga);
    for (pg::Table *table : saga_tables)
        table->release();
}

void DueItems::commit() {
    CRASH_POINT("worker: steps committed");
    if (ahead > 0) {
        const auto place = found.begin() + next;
        *place = {.item = item, .is_retry = false, .deferral = {}};
        // Another batch goes on with it, behind the other sagas. One that met a lock is the next.
        if (!state.pace.next_alone)
            std::rotate(place, place + 1, found.end());
    }
    first = next;
    total.done += counts.done;
    total.failures += counts.failures;
    total.deferred += counts.deferred;
    total.skipped = total.skipped || counts.skipped;
    for (int32 i = 0; i < first_attempt_count; ++i)
        count_first_attempt(first_attempts[i]);
}

template <class F> void in_transaction(F &&body) {
    pg::in_transaction([&] {
        require_extension();
        pg::with_spi(body);
    });
}

/// Runs batch after batch until a turn's time is over. Whether it ran all items.
bool run_items(DueItems &items, MemoryContext memory) {
    const int64 end = pg::steady_now() + turn_time_max_us;
    const auto count = static_cast<int32>(items.found.size());
    for (bool is_first = true; items.first < count && (is_first || pg::steady_now() < end);
         is_first = false) {
        run_batch(state.pace, memory, items);
        items.commit();
    }
    end_turn();
    return items.first == count;
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
    MemoryContextSwitchTo(memory);
    if (delivery_guard.remaining() > 0)
        delivered.next_due = std::min(delivered.next_due,
                                      pg::time_plus(pg::clock_now(), delivery_guard.remaining()));
    return delivered;
}

} // namespace

TurnOutcome run_turn(const NodeIdentity &node, std::string_view name, MemoryContext memory) {
    restart_state(node);
    state.name = name;
    const DeliveryOutcome delivered = deliver(node, memory);
    const TimestampTz now = pg::clock_now();
    TurnOutcome outcome{.items = delivered.items,
                        .failures = delivered.failures,
                        .deferred = delivered.deferred,
                        .more = delivered.more,
                        .next_due = delivered.next_due};
    FoundItems found{};
    in_transaction([&] { found = state.search.find(now, memory); });
    outcome.next_due = std::min(outcome.next_due, found.next_due);
    const auto room = sizeof(uint64) * static_cast<size_t>(pg::settings.batch_size);
    DueItems items{.found = found.list,
                   .first_attempts = static_cast<uint64 *>(MemoryContextAlloc(memory, room))};
    const bool are_run = run_items(items, memory);
    const DueItems::Counts &total = items.total;
    outcome.items += total.done;
    outcome.failures += total.failures;
    outcome.deferred += total.deferred;
    outcome.more = outcome.more || total.done > 0 || total.failures > 0 || total.deferred > 0;
    state.search.settle(now, found.is_whole && are_run && !total.skipped);
    // A handler's session locks would stay: this session never ends.
    LockReleaseSession(USER_LOCKMETHOD);
    return outcome;
}

} // namespace stacksaga
