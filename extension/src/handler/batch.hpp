// A batch: items that each call a user's function, together in one transaction, which commits with
// those that succeeded.
//
// An item that fails undoes the transaction, which runs again up to that item and charges it. An
// error at the commit, which no item is known to have caused, halves the batch.
//
// Items keep the locks of their functions until the commit, so a batch must neither deadlock with
// another one nor keep others waiting. It commits when another session waits for one of its locks.
// An item other than the first waits for a lock at most 20 ms; then the batch commits without it,
// and the item runs next, alone and without that limit, and is charged no attempt. Workers that
// contend for locks after a few items take turns for a while (docs/decisions/0019). Where
// that does not help, each item runs in a subtransaction for a while, so that a lock undoes that
// item only. So does each item of a batch that a failure has undone, and of the next one, until
// a batch has no failure.
#pragma once
#include "pg/lock.hpp"
#include "pg/statement/attempt.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/transaction.hpp"
#include "src/common/extension_lock.hpp"
#include "src/handler/crash_record.hpp"
#include "src/handler/handler_error.hpp"

namespace stacksaga {

/// How large and how careful the batches of one queue are; kept from batch to batch.
struct BatchPace {
    int32 size = 0; ///< halves with each try that was undone, doubles with each other; 0: the most
    int32 cap = 0;  ///< of the size, since a larger one could not be committed; 0: none
    int64 capped_until = 0;  ///< of the steady clock
    int32 guarded = 0;       ///< batches left that give each item a subtransaction
    int32 in_turn = 0;       ///< batches left that take turns with other workers'
    bool next_alone = false; ///< the next item runs alone
};

/// One batch until it commits. Lives in memory that survives an abort.
class BatchRun {
public:
    explicit BatchRun(BatchPace &pace) : pace_(pace) {}

    /// One try, inside its transaction.
    template <class Items> void run_items(Items &items) {
        wait_for_turn();
        items.open(room_, pace_.guarded > 0);
        while (items.has_next() && begin_item(items.id(), items.weight())) {
            CHECK_FOR_INTERRUPTS();
            bool goes_on = true;
            if (decision_ != Decision::run) {
                settle(items);
                goes_on = false;
            } else if (pace_.guarded > 0) {
                goes_on = run_guarded(items);
            } else {
                run_watched(items);
                items.keep();
            }
            AfterTriggerFireDeferred(); // those of the engine's own writes, for this item
            if (!goes_on || has_to_end())
                break;
        }
        phase_ = Phase::committing;
        items.close();
    }

    /// Before each try, outside of a transaction.
    void begin_try();
    /// Inside PG_CATCH: decides how the next try differs. False when another try is useless.
    bool learn(bool can_postpone);
    void committed();

private:
    enum class Phase : uint8_t { opening, running, committing };
    enum class Decision : uint8_t { run, charge, postpone };

    void wait_for_turn();
    bool begin_item(int64 id, int32 weight);
    bool has_to_end();
    void decide(Decision decision);
    bool decide_next(bool may_charge, bool can_postpone);
    bool learn_from_item(int sqlstate, bool can_postpone);
    bool learn_from_commit(int sqlstate, bool can_postpone);
    bool settles_in_place(bool can_postpone);
    void yield_to_lock();
    void check_no_failed_lock() const;
    static void note_lock(void *run);

    /// Runs the item, and raises again an error of a lock that its function has caught.
    template <class Items> void run_watched(Items &items) {
        has_failed_lock_ = false;
        ErrorContextCallback callback{
            .previous = error_context_stack, .callback = note_lock, .arg = this};
        error_context_stack = &callback;
        items.run();
        error_context_stack = callback.previous;
        check_no_failed_lock();
    }

    /// Runs the item in a subtransaction; false when the batch ends here.
    template <class Items> bool run_guarded(Items &items) {
        const bool is_done = pg::attempt_expecting(
            [&](const ErrorData &) { return settles_in_place(Items::can_postpone); },
            [&] { run_watched(items); });
        if (is_done) {
            items.keep();
            return true;
        }
        record_nothing();
        if (decision_ == Decision::run) // it failed at a lock
            return false;
        settle(items);
        decision_ = Decision::run;
        return Items::goes_on_after_failure;
    }

    template <class Items> void settle(Items &items) {
        if (decision_ == Decision::postpone || !items.charge(error_))
            items.postpone();
    }

    BatchPace &pace_;
    // Of all tries.
    int32 room_ = 0; ///< items at most
    bool is_alone_ = false;
    bool was_undone_ = false;
    bool conflicts_with_workers_ = false; ///< after few items
    int32 deadlocks_ = 0;
    int64 pause_us_ = 0;    ///< before the next try
    int64 end_before_ = -1; ///< the item that failed at a lock; -1: none
    int64 decided_ = -1;    ///< the item that is charged or postponed; -1: none
    Decision its_decision_ = Decision::run;
    HandlerError error_{};
    // Of this try.
    Phase phase_ = Phase::opening;
    Decision decision_ = Decision::run; ///< about the item that is at work
    int64 id_ = -1;
    int32 index_ = -1;
    int32 failures_ = 0; ///< that were settled in place
    int32 weight_ = 0;
    int32 total_weight_ = 0;
    int64 begun_at_ = 0;
    pg::Waiters waiters_{};
    bool is_limited_ = false; ///< waits for locks end after a while
    bool has_failed_lock_ = false;
};
static_assert(std::is_trivially_destructible_v<BatchRun>);

/// Ends the turn that batches may have kept: to be called when no further batch follows.
void end_turn();

/// Runs a batch of `items` until it commits, outside of a transaction. An error for which no item
/// can be held responsible comes out, with its transaction still to be aborted. `memory` outlives
/// the transactions. Items is a struct with
///
///   void open(int32 room, bool is_guarded)
///                           reads at most `room` items in a new transaction; once for each try.
///                           is_guarded: each of them runs in a subtransaction
///   bool has_next()         whether there is another one, which the following are about
///   int64 id()              the same for that item in each try
///   int32 weight()          more than 1: it can be divided, by opening with less room
///   void run()              calls its function
///   void keep()             what it did stays; on to the next one
///   bool charge(error)      writes a failed attempt instead, and on to the next one; false: the
///                           item has no attempts
///   void postpone()         makes it due later instead, where can_postpone, and on to the next one
///   void close()            before the commit
///   can_postpone, goes_on_after_failure
template <class Items> void run_batch(BatchPace &pace, MemoryContext memory, Items &items) {
    auto &run = *new (MemoryContextAlloc(memory, sizeof(BatchRun))) BatchRun(pace);
    volatile bool is_committed = false;
    while (!is_committed) {
        run.begin_try();
        PG_TRY();
        {
            pg::in_transaction([&] {
                require_extension();
                pg::with_spi([&] { run.run_items(items); });
            });
            is_committed = true;
        }
        PG_CATCH();
        {
            record_nothing();
            MemoryContextSwitchTo(memory);
            if (!run.learn(Items::can_postpone)) {
                end_turn();
                PG_RE_THROW();
            }
            AbortOutOfAnyTransaction();
            FlushErrorState();
        }
        PG_END_TRY();
    }
    run.committed();
}

} // namespace stacksaga
