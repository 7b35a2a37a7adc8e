// A worker's turn: due work of its slots, effects, markers and the fence in one transaction.
//
// Found without a lock, so only a hint; then the slots of the batch are locked and their owner read
// anew (fence.hpp), and every item is read again under its saga's lock. When a handler fails, the
// transaction is rolled back and run again up to that item, whose failure it then writes: a batch
// needs no subtransaction, and what succeeded costs one commit.
#include "src/worker/poll.hpp"

#include "pg/clock.hpp"
#include "pg/query.hpp"
#include "pg/scope.hpp"
#include "pg/settings.hpp"
#include "pg/transaction.hpp"
#include "src/common/loop_guard.hpp"
#include "src/common/presence.hpp"
#include "src/common/probe.hpp"
#include "src/handler/crash_record.hpp"
#include "src/handler/handler.hpp"
#include "src/outbox/delivery_worker.hpp"
#include "src/ring/fence.hpp"
#include "src/ring/retry_budget.hpp"
#include "src/saga/work_item.hpp"
#include "src/worker/aside.hpp"

namespace stacksaga {

namespace {

// A turn ends after so long, done or not: its locks keep others out of rows and slots.
constexpr int64 turn_time_max_us = 250 * 1000;
constexpr int32 rotation_step = 97; // odd: it comes round to every slot
constexpr int32 rotation_size = 4096;

// Its own slots, and those that services own, who cannot run these items (see fence.cpp).
//
// The slots in an order that changes from turn to turn, so that a backlog in one does not keep the
// others waiting.
#define SLOTS_TO_WORK_IN                                                                           \
    "stacksaga.slot WHERE ring_id = $1"                                                            \
    " AND (owner = $2 OR owner IN (SELECT incarnation FROM stacksaga.node WHERE pid IS NULL)) "
constinit pg::Statement probe{
    "SELECT w.saga_id, w.slot, w.step_no, w.direction, w.attempt,"
    "       CASE WHEN w.is_retry THEN ("
    "            SELECT a.definition_id FROM stacksaga.saga a"
    "             WHERE a.saga_id = w.saga_id AND a.token OPERATOR(stacksaga.=) w.token) END"
    "  FROM (SELECT slot FROM " SLOTS_TO_WORK_IN " ORDER BY slot # $6) AS s, LATERAL ("
    "       SELECT saga_id, token, slot, step_no, direction, attempt,"
    "              attempt > attempt_base AND lease_until IS NULL AND NOT verifying"
    "              AND queue IS NULL AS is_retry"
    "         FROM stacksaga.work w"
    "        WHERE w.ring_id = $1 AND w.slot = s.slot AND w.due_at >= $3 AND w.due_at <= $4"
    "          AND (w.queue IS NULL OR w.verifying OR w.lease_until IS NOT NULL)"
    "        ORDER BY w.due_at LIMIT $5) AS w"
    " LIMIT $5"};
constinit pg::Statement find_next_due{
    "SELECT min(w.due_at)"
    "  FROM (SELECT slot FROM " SLOTS_TO_WORK_IN ") AS s, LATERAL ("
    "       SELECT due_at FROM stacksaga.work w"
    "        WHERE w.ring_id = $1 AND w.slot = s.slot AND w.due_at > $3"
    "          AND (w.queue IS NULL OR w.verifying OR w.lease_until IS NOT NULL)"
    "        ORDER BY w.due_at LIMIT 1) AS w"};

/// What a worker remembers between turns.
struct TurnState {
    NodeIdentity node{};
    std::string_view name{}; ///< the caller's, for this turn
    ProbeMemory probe{};
    int32 rotation = 0;
    int32 batch_size = 0; ///< halves with each failing batch, doubles with each clean one
};
constinit TurnState state{};
// The last turn has not come to the end of its messages: an error ended it.
constinit bool delivery_is_unsafe = false;

struct Batch {
    DueItem *items;
    int64 *deferrals; ///< of each item: for so many microseconds, since the budget is empty; or 0
    int32 count;
    int32 done;
    int32 deferred;
    bool skipped; ///< something due was left: the slot is not ours, or the saga is locked
};

/// An item that raised an error, by its place in the batch.
struct Failed {
    int32 index;
    bool is_handlers;   ///< what it raised is its handler's error
    HandlerError error; ///< then
};

/// In memory of its own, so that it is whole after a longjmp.
struct Failures {
    int32 count;
    Failed *list;
    std::span<Failed> all() const { return {list, static_cast<size_t>(count)}; }
};

// Which item of the batch runs.
constexpr int32 none_yet = -1;
constinit int32 running_index = none_yet;

void restart_state(const NodeIdentity &node) {
    if (state.node.ring_id == node.ring_id && state.node.incarnation == node.incarnation)
        return;
    state = TurnState{};
    state.node = node;
    state.batch_size = pg::settings.batch_size;
}

void choose_batch_size(bool clean) {
    int32 limit = pg::settings.batch_size;
    state.batch_size =
        clean ? std::min(limit, state.batch_size * 2) : std::max(1, state.batch_size / 2);
}

/// Decides about the retries of the batch, once: it may have to be run more often.
void ask_budget(const pg::Rows &rows, Batch &batch) {
    std::optional<double> fraction;
    for (int32 i = 0; i < batch.count; ++i) {
        batch.deferrals[i] = 0;
        if (rows.is_null(static_cast<uint64>(i), 5))
            continue;
        if (!fraction)
            fraction = fraction_of(state.node);
        const uint64 budget = budget_of_definition(rows.int4(static_cast<uint64>(i), 5));
        batch.deferrals[i] = defer_retry(budget, *fraction).value_or(0);
    }
}

Batch find_batch(TimestampTz now, MemoryContext memory) {
    TimestampTz from = state.probe.begin(now);
    state.rotation = (state.rotation + rotation_step) % rotation_size;
    pg::Rows rows = probe.run(pg::param(state.node.ring_id), pg::param(state.node.incarnation),
                              pg::param_time(from), pg::param_time(now),
                              pg::param(state.batch_size), pg::param(state.rotation));
    state.probe.end(now);
    Batch batch{};
    batch.count = static_cast<int32>(rows.count());
    batch.items = static_cast<DueItem *>(
        MemoryContextAlloc(memory, sizeof(DueItem) * std::max<size_t>(rows.count(), 1)));
    for (int32 i = 0; i < batch.count; ++i) {
        auto row = static_cast<uint64>(i);
        batch.items[i] = {.saga_id = rows.uuid(row, 0),
                          .slot = rows.int4(row, 1),
                          .step_no = rows.int2(row, 2),
                          .direction = *core::direction_of(rows.text(row, 3)),
                          .attempt = rows.int4(row, 4)};
    }
    batch.deferrals = static_cast<int64 *>(
        MemoryContextAlloc(memory, sizeof(int64) * std::max<size_t>(rows.count(), 1)));
    ask_budget(rows, batch);
    return batch;
}

/// Whether this worker holds the slot of each item, under locks that last to the end of the
/// transaction.
bool *lock_slots_of(const Batch &batch) {
    auto count = static_cast<size_t>(batch.count);
    auto *slots = static_cast<int32 *>(palloc(sizeof(int32) * count));
    for (size_t i = 0; i < count; ++i)
        slots[i] = batch.items[i].slot;
    std::sort(slots, slots + count);
    auto distinct = static_cast<size_t>(std::unique(slots, slots + count) - slots);
    auto *slot_owned = static_cast<bool *>(palloc0(sizeof(bool) * distinct));
    lock_slots(state.node, {slots, distinct}, {slot_owned, distinct});
    auto *owned = static_cast<bool *>(palloc0(sizeof(bool) * count));
    for (size_t i = 0; i < count; ++i)
        owned[i] =
            slot_owned[std::lower_bound(slots, slots + distinct, batch.items[i].slot) - slots];
    return owned;
}

Failed *find(std::span<Failed> failed, int32 index) {
    for (Failed &f : failed)
        if (f.index == index)
            return &f;
    return nullptr;
}

bool postpone(const DueItem &item, int64 delay_us) {
    return postpone_retry(item.saga_id, item.step_no, item.direction, delay_us);
}

bool run_named(const DueItem &item, std::string_view worker) {
    record_step({item.saga_id, item.step_no, item.direction, item.attempt});
    const bool done = run_item(item, worker);
    record_nothing();
    return done;
}

void deal_with(const DueItem &item, const Failed &failed, std::string_view worker) {
    if (failed.is_handlers)
        fail_item(item, worker, failed.error);
    else
        set_aside(item);
}

void run_items(Batch &batch, std::span<Failed> failed) {
    const std::string_view worker = state.name;
    running_index = none_yet;
    bool *owned = lock_slots_of(batch);
    batch.done = 0;
    batch.deferred = 0;
    const int64 end = pg::steady_now() + turn_time_max_us;
    for (int32 i = 0; i < batch.count; ++i) {
        CHECK_FOR_INTERRUPTS();
        // Not while a failure is still to be written.
        if (i > 0 && failed.empty() && pg::steady_now() > end) {
            batch.count = i;
            break;
        }
        if (!owned[i]) {
            batch.skipped = true;
            continue;
        }
        running_index = i;
        if (const Failed *f = find(failed, i))
            deal_with(batch.items[i], *f, worker);
        else if (batch.deferrals[i] > 0)
            batch.deferred += postpone(batch.items[i], batch.deferrals[i]) ? 1 : 0;
        else if (run_named(batch.items[i], worker))
            ++batch.done;
        else
            batch.skipped = true;
    }
    running_index = batch.count;
}

template <class F> void in_transaction(F &&body) {
    pg::in_transaction([&] {
        require_extension();
        pg::with_spi(body);
    });
}

/// Blames the item that ran for the error that is being caught, and shortens the batch to the items
/// up to it. False when no item is to blame, or the error is likely to be gone at the next try.
bool find_culprit(Batch &batch, Failures &failures) {
    if (running_handler.is_active) {
        failures.list[failures.count++] = {running_index, true, read_handler_error()};
        batch.count = running_index + 1;
        return true;
    }
    if (running_index == none_yet || is_passing(geterrcode()))
        return false;
    if (running_index == batch.count && batch.count > 1) { // the commit: any of them
        batch.count = 1;
        return true;
    }
    const int32 index = std::min(running_index, batch.count - 1);
    Failed *known = find(failures.all(), index);
    if (known != nullptr && !known->is_handlers)
        return false; // it cannot even be set aside
    if (known == nullptr)
        known = &failures.list[failures.count++];
    EmitErrorReport();
    *known = {index, false, {}};
    batch.count = index + 1;
    return true;
}

/// Runs the batch until it commits: each item that raises an error shortens it to the items up to
/// that one, and in the commit is written down as failed, or set aside.
int32 run_batch(Batch &batch, MemoryContext memory) {
    auto *failures = static_cast<Failures *>(MemoryContextAllocZero(memory, sizeof(Failures)));
    failures->list = static_cast<Failed *>(
        MemoryContextAlloc(memory, sizeof(Failed) * static_cast<size_t>(batch.count)));
    volatile bool committed = false;
    while (!committed) {
        PG_TRY();
        {
            in_transaction([&] { run_items(batch, failures->all()); });
            committed = true;
        }
        PG_CATCH();
        {
            record_nothing();
            MemoryContextSwitchTo(memory);
            if (!find_culprit(batch, *failures)) {
                choose_batch_size(false);
                PG_RE_THROW();
            }
            AbortOutOfAnyTransaction();
            FlushErrorState();
        }
        PG_END_TRY();
    }
    return failures->count;
}

} // namespace

TurnOutcome run_turn(const NodeIdentity &node, std::string_view name, MemoryContext memory) {
    running_handler.is_at_top_level = true;
    restart_state(node);
    state.name = name;
    // Messages first: the look for sagas probes every slot, and a message would wait for it. But an
    // error there, which ends the turn, must not keep sagas from having theirs.
    DeliveryOutcome delivered{};
    auto deliver = [&] {
        delivery_is_unsafe = true;
        delivered = deliver_messages(node, memory);
        delivery_is_unsafe = false;
    };
    const bool delivers_first = !delivery_is_unsafe;
    if (delivers_first)
        deliver();
    TimestampTz now = pg::clock_now();
    Batch batch{};
    TurnOutcome outcome{
        .items = 0, .failures = 0, .deferred = 0, .more = false, .next_due = DT_NOEND};
    in_transaction([&] {
        batch = find_batch(now, memory);
        if (batch.count == 0) {
            pg::Rows rows = find_next_due.run(pg::param(node.ring_id), pg::param(node.incarnation),
                                              pg::param_time(now));
            outcome.next_due = rows.optional_time(0, 0).value_or(DT_NOEND);
        }
    });
    bool was_cut = batch.count == state.batch_size;
    if (batch.count > 0) {
        int32 found = batch.count;
        outcome.failures = run_batch(batch, memory);
        outcome.items = batch.done;
        outcome.deferred = batch.deferred;
        was_cut = was_cut || batch.count < found;
        choose_batch_size(outcome.failures == 0);
    }
    outcome.more = batch.done > 0 || outcome.failures > 0 || outcome.deferred > 0;
    state.probe.settle(now, !was_cut && !batch.skipped);
    if (!delivers_first)
        deliver();
    outcome.items += delivered.items;
    outcome.failures += delivered.failures;
    outcome.deferred += delivered.deferred;
    outcome.more = outcome.more || delivered.more;
    outcome.next_due = std::min(outcome.next_due, delivered.next_due);
    // A handler's session locks would outlive what took them: this session never ends.
    LockReleaseSession(USER_LOCKMETHOD);
    return outcome;
}

} // namespace stacksaga
