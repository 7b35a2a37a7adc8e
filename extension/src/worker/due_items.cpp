// The items of a worker's turn: their order, and how each one ends.
#include "src/worker/due_items.hpp"

#include "core/queue/claim_order.hpp"
#include "core/ring/token.hpp"
#include "core/saga/work_purpose.hpp"
#include "core/work/item_order.hpp"

#include "pg/citus/shard_lock.hpp"
#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/settings.hpp"
#include "pg/statement/query.hpp"
#include "src/common/limits.hpp"
#include "src/handler/process_retry_budget.hpp"
#include "src/ring/fence.hpp"
#include "src/saga/postpone.hpp"
#include "src/saga/saga_tables.hpp"

namespace stacksaga {

namespace {

// The definition whose budget decides on the retry of a saga's step.
constinit pg::Statement definition_of_saga{
    "SELECT definition_id FROM stacksaga.saga"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"};

/// Notes whether this worker holds the slot of each item, under locks that last to the end of the
/// transaction.
void lock_slots_of(const NodeIdentity &node, std::span<FoundItem> items) {
    auto *slots = static_cast<int32 *>(palloc(sizeof(int32) * items.size()));
    for (size_t i = 0; i < items.size(); ++i)
        slots[i] = items[i].item.slot;
    std::sort(slots, slots + items.size());
    auto distinct = static_cast<size_t>(std::unique(slots, slots + items.size()) - slots);
    auto *slot_owned = static_cast<bool *>(palloc0(sizeof(bool) * distinct));
    // The fence: a node that takes a slot over waits for the transactions that hold its lock. The
    // owner is read after the lock, so it stays the owner until this transaction ends.
    CRASH_POINT("worker: before the slots");
    lock_slots(node, {slots, distinct}, {slot_owned, distinct});
    CRASH_POINT("worker: slots locked");
    for (FoundItem &i : items)
        i.is_owned = slot_owned[std::lower_bound(slots, slots + distinct, i.item.slot) - slots];
}

} // namespace

/// Moves the items that the batch may run between `first` and `end`.
void DueItems::plan() {
    core::LowerRankTurn turn = lower_ranks;
    for (int32 i = first; i < end; ++i) {
        FoundItem *planned = core::next_item(from(i, size()), turn);
        if (planned == nullptr) {
            end = i;
            return;
        }
        move_to_front(from(i, size()), planned);
        core::note_step(turn);
    }
}

void DueItems::open(int32 room, bool is_guarded) {
    record_beginning();
    next = first;
    end = std::min(first + room, size());
    steps_left = std::min(room, steps_max - total.steps);
    if (room == 1)
        run_ahead = RunAhead::no;
    else
        run_ahead = is_guarded ? RunAhead::written : RunAhead::yes;
    lower_ranks = state.lower_ranks;
    first_attempt_count = 0;
    counts = {};
    saga = nullptr;
    ahead = 0;
    // A try that was rolled back has moved items: this one begins with the order of the last
    // commit.
    if (has_ranks())
        std::copy(saved.begin() + first, saved.end(), found.begin() + first);
    if (has_ranks() && !keeps_first)
        plan();
    for (pg::Table *table : saga_tables)
        static_cast<void>(table->keep_open(pg::KeptIndexes::all));
    // Slots before sagas, and once for the batch: run() locks the saga of each item later and reads
    // it again. An item whose slot this worker has lost is skipped by has_next().
    lock_slots_of(state.search.node(), from(first, end));
}

/// Brings the next item of the batch to its place; false: there is none.
bool DueItems::take_next() {
    if (next == end)
        return false;
    if (!has_ranks() || keeps_first)
        return true;
    FoundItem *taken = core::next_item(from(next, end), lower_ranks);
    if (taken == nullptr)
        return false;
    move_to_front(from(next, end), taken);
    return true;
}

bool DueItems::has_next() {
    if (counts.bytes > static_cast<uint64>(pg::settings.batch_bytes))
        return false;
    if (steps_left <= 0 || ahead > 0)
        return steps_left > 0;
    while (take_next()) {
        if (at(next).is_owned) {
            item = at(next).item;
            return true;
        }
        counts.skipped = true;
        ++next;
    }
    return false;
}

bool DueItems::is_over() const {
    return total.steps >= steps_max ||
           std::all_of(found.begin() + first, found.end(),
                       [](const FoundItem &i) { return i.place.is_reserve; });
}

/// How the steps that follow the item's may run, while others wait.
RunAhead DueItems::may_run_ahead() const {
    const bool may = !has_ranks() ||
                     core::may_run_ahead<FoundItem>(at(next), from(next + 1, size()), lower_ranks);
    return may ? run_ahead : RunAhead::no;
}

void DueItems::note_step() {
    core::note_step(lower_ranks);
    ++counts.steps;
}

void DueItems::note(const ItemOutcome &kept) {
    if (kept.first_attempt)
        first_attempts[first_attempt_count++] = *kept.first_attempt;
}

/// How long the definition's budget defers a retry.
int64 DueItems::ask_budget(const DueItem &retry) {
    const int64 token = core::token_of_uuid(retry.saga_id.data).value();
    pg::Rows rows = definition_of_saga.run(pg::param(retry.saga_id), pg::param(token));
    if (rows.empty())
        return 0;
    if (!fraction)
        fraction = fraction_of(state.search.node());
    return defer_retry(budget_of_definition(rows.int4(0)), *fraction).value_or(0);
}

/// Whether the item is a retry that finds the budget empty. The budget is asked once, however often
/// the item is run again.
bool DueItems::is_found_deferred() {
    FoundItem &retry = at(next);
    if (!retry.is_retry)
        return false;
    if (!retry.deferral)
        retry.deferral = ask_budget(retry.item);
    return *retry.deferral > 0;
}

void DueItems::run() {
    outcome = {};
    is_deferred = false;
    pg::hold_shard("saga", core::token_of_uuid(item.saga_id.data).value());
    if (ahead == 0 && is_found_deferred()) {
        is_deferred = postpone_retry(item, *at(next).deferral);
        return;
    }
    // Recorded before the handler runs: if it ends this process, the next one charges this attempt.
    if (item.purpose == core::WorkPurpose::step)
        record_step({item.saga_id, item.step_no, item.direction, item.attempt});
    CRASH_POINT("worker: step recorded");
    // If the subtransaction is undone, the saga in memory is ahead of its rows: run() must not use
    // it again.
    Saga *current = std::exchange(saga, nullptr);
    outcome = current != nullptr ? run_next(*current, item, state.name, may_run_ahead())
                                 : run_item(item, state.name, may_run_ahead());
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

/// To another item; the next step of this one's saga waits.
void DueItems::wait_again() {
    at(next).steps += ahead + 1;
    put_back(at(next), outcome.next, pg::clock_now());
    saga = nullptr;
    ahead = 0;
    --steps_left;
}

void DueItems::keep() {
    counts.deferred += is_deferred ? 1 : 0;
    counts.done += outcome.is_done ? 1 : 0;
    counts.bytes += outcome.bytes;
    if (!(outcome.is_done || outcome.is_gone || is_deferred)) {
        counts.skipped = true;
        state.search.note_locked();
    }
    note(outcome);
    if (outcome.is_done)
        note_step();
    if (outcome.saga == nullptr) {
        if (outcome.has_next && has_ranks())
            wait_again();
        else
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
    if (is_put_off(item, error)) {
        ereport(LOG, (errmsg("saga %s cannot be read: %s", uuid_text(item.saga_id),
                             error.message.data())));
        return false;
    }
    const ItemOutcome failed = saga != nullptr ? fail_next(*saga, item, state.name, error)
                                               : fail_item(item, state.name, error);
    if (!failed.is_done)
        return false;
    ++counts.failures;
    note(failed);
    note_step();
    go_on();
    return true;
}

void DueItems::postpone() {
    if (saga != nullptr)
        write_saga(*saga);
    postpone_item(item);
    ++counts.failures;
    note_step();
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
    keeps_first = state.pace.next_alone && next < size();
    if (ahead > 0) {
        put_back(at(next), item, pg::clock_now());
        // Another batch continues it, after the other sagas. An item that found a lock is the next
        // one.
        if (!keeps_first)
            std::rotate(found.begin() + next, found.begin() + next + 1, found.end());
    }
    if (keeps_first)
        at(next).place.is_reserve = false;
    first = next;
    for (FoundItem &i : from(first, size()))
        i.steps = 0;
    if (has_ranks())
        std::copy(found.begin() + first, found.end(), saved.begin() + first);
    state.lower_ranks = lower_ranks;
    total.done += counts.done;
    total.failures += counts.failures;
    total.deferred += counts.deferred;
    total.steps += counts.steps;
    total.skipped = total.skipped || counts.skipped;
    // Only now: attempts that were rolled back must not fill the retry budget.
    for (int32 i = 0; i < first_attempt_count; ++i)
        count_first_attempt(first_attempts[i]);
}

DueItems due_items(TurnState &state, const FoundItems &found, MemoryContext memory) {
    const auto allocate = [memory]<class T>(T *, size_t count) {
        return static_cast<T *>(MemoryContextAlloc(memory, sizeof(T) * count));
    };
    std::span<FoundItem> saved;
    if (is_mixed(found.list)) {
        saved = {allocate(static_cast<FoundItem *>(nullptr), found.list.size()), found.list.size()};
        std::copy(found.list.begin(), found.list.end(), saved.begin());
    }
    return {.state = state,
            .found = found.list,
            .saved = saved,
            .steps_max = has_reserve(found.list) ? found.limit : INT32_MAX,
            .first_attempts = allocate(static_cast<uint64 *>(nullptr),
                                       static_cast<size_t>(pg::settings.batch_size))};
}

} // namespace stacksaga
