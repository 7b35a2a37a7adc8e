#include "src/handler/batch.hpp"

#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/random.hpp"
#include "pg/settings.hpp"

namespace stacksaga {

namespace {

// A transaction ends after this time, done or not: its locks keep others out of rows and slots.
constexpr int64 batch_time_max_us = 250 * 1000;
constexpr int lock_timeout_ms = 20;
// A process remembers 64 ids of subtransactions in shared memory; with more of them every reader of
// a row looks for its writer on disk.
constexpr int subtransactions_max = 50;
constexpr int32 guarded_batches = 100;
// Workers that contend for locks after fewer items than this take turns for a number of batches. A
// turn that others wait for ends after turn_time_us.
constexpr int32 few_items = 32;
constexpr int32 turns = 50;
constexpr int64 turn_time_us = 100 * 1000;
constexpr int64 cap_time_us = 60 * USECS_PER_SEC;
constexpr int32 deadlocks_max = 3;
constexpr double longest_pause_us = 100 * 1000;

bool is_lock_error(int sqlstate) {
    return sqlstate == ERRCODE_LOCK_NOT_AVAILABLE || sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED;
}

/// Whether an error of the engine, or at the commit, says nothing about the item.
bool is_of_the_server(int sqlstate) {
    switch (ERRCODE_TO_CATEGORY(sqlstate)) {
    case ERRCODE_TO_CATEGORY(ERRCODE_INSUFFICIENT_RESOURCES):
    case ERRCODE_TO_CATEGORY(ERRCODE_OPERATOR_INTERVENTION):
    case ERRCODE_TO_CATEGORY(ERRCODE_SYSTEM_ERROR):
    case ERRCODE_TO_CATEGORY(ERRCODE_INTERNAL_ERROR):
    case ERRCODE_TO_CATEGORY(ERRCODE_TRANSACTION_ROLLBACK):
        return true;
    default:
        return sqlstate == ERRCODE_LOCK_NOT_AVAILABLE;
    }
}

/// Until the end of the transaction; a shorter one of the administrator's stays.
void limit_lock_waits() {
    if (LockTimeout > 0 && LockTimeout <= lock_timeout_ms)
        return;
    char value[16];
    snprintf(value, sizeof value, "%d", lock_timeout_ms);
    set_config_option("lock_timeout", value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0,
                      false);
}

int32 size_of(BatchPace &pace) {
    const int32 most = pg::settings.batch_size;
    if (pace.cap > 0 && pg::steady_now() >= pace.capped_until)
        pace.cap = 0;
    pace.size = pace.size == 0 ? most : std::clamp(pace.size, 1, most);
    return pace.cap > 0 ? std::min(pace.size, pace.cap) : pace.size;
}

// ----------------------------------------------------------------------------- turns

constinit bool has_turn = false;
constinit int64 turn_begun = 0;

/// Of the session, so that several batches fit into a turn.
void begin_turn() {
    if (has_turn)
        return;
    const LOCKTAG tag = pg::lock_tag(pg::LockClass::turn, 0, 0);
    (void)LockAcquire(&tag, ExclusiveLock, true, false);
    has_turn = true;
    turn_begun = pg::steady_now();
}

bool is_turn_over() {
    return pg::steady_now() - turn_begun > turn_time_us;
}

} // namespace

void end_turn() {
    if (!has_turn)
        return;
    const LOCKTAG tag = pg::lock_tag(pg::LockClass::turn, 0, 0);
    if (pg::holds_lock(tag, ExclusiveLock)) // a handler may have given it up
        LockRelease(&tag, ExclusiveLock, true);
    has_turn = false;
}

void BatchRun::begin_try() {
    if (pause_us_ > 0)
        (void)WaitLatch(MyLatch, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, pause_us_ / 1000,
                        pg::wait_event_of_worker());
    pause_us_ = 0;
    if (room_ == 0) {
        is_alone_ = pace_.next_alone;
        pace_.next_alone = false;
        room_ = is_alone_ ? 1 : size_of(pace_);
    }
    phase_ = Phase::opening;
    decision_ = Decision::run;
    id_ = -1;
    index_ = -1;
    failures_ = 0;
    weight_ = 0;
    total_weight_ = 0;
    waiters_ = {};
    is_limited_ = false;
}

/// The first lock of the transaction, so it is never part of a deadlock. The worker that has the
/// turn waits for no other lock for long, so an item that must wait runs without the turn.
void BatchRun::wait_for_turn() {
    if (pace_.in_turn > 0 && !is_alone_)
        begin_turn();
    else
        end_turn();
    begun_at_ = pg::steady_now();
}

bool BatchRun::begin_item(int64 id, int32 weight) {
    if (id == end_before_)
        return false;
    phase_ = Phase::running;
    running_handler.end_reading();
    id_ = id;
    weight_ = weight;
    total_weight_ += weight;
    decision_ = id == decided_ ? its_decision_ : Decision::run;
    ++index_;
    if (!is_limited_ && (index_ > 0 || has_turn)) {
        limit_lock_waits();
        is_limited_ = true;
    }
    return true;
}

bool BatchRun::has_to_end() {
    // Looked at after each item, while its locks are still held: a session that waits for one of
    // them waits for this commit, so the commit comes now. Items done so far are kept by it.
    if (is_alone_ || MyProc->subxidStatus.count >= subtransactions_max)
        return true;
    waiters_ = pg::find_waiters();
    if (waiters_.any)
        return true;
    if (waiters_.turn && is_turn_over())
        return true;
    // An item that a decision was made about is still to come.
    return decided_ == -1 && pg::steady_now() - begun_at_ > batch_time_max_us;
}

void BatchRun::note_lock(void *run) {
    if (is_lock_error(geterrcode()))
        static_cast<BatchRun *>(run)->has_failed_lock_ = true;
}

void BatchRun::check_no_failed_lock() const {
    if (has_failed_lock_ && is_limited_)
        ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
                        errmsg_internal("a function did not get a lock and continued without it")));
}

void BatchRun::yield_to_lock() {
    // The item runs next, in a batch of its own and without the limit: waiting harms nobody there,
    // since that transaction holds no other item's locks.
    pace_.next_alone = true;
    if (index_ < few_items && pace_.in_turn == 0)
        conflicts_with_workers_ = true;
    else
        pace_.guarded = guarded_batches;
}

void BatchRun::decide(Decision decision) {
    if (decision == Decision::postpone) // a failed attempt is recorded with its error
        EmitErrorReport();
    error_ = read_handler_error();
    decision_ = decision;
    its_decision_ = decision;
    decided_ = id_;
}

/// Charges the item. If charging is what failed, or the error says nothing about the item,
/// postpones it. If postponing failed, gives up.
bool BatchRun::decide_next(bool may_charge, bool can_postpone) {
    if (decision_ == Decision::run && may_charge)
        decide(Decision::charge);
    else if (decision_ != Decision::postpone && can_postpone)
        decide(Decision::postpone);
    else
        return false;
    return true;
}

bool BatchRun::settles_in_place(bool can_postpone) {
    const int sqlstate = geterrcode();
    const bool is_items = running_handler.is_active() || running_handler.is_reading();
    if (is_lock_error(sqlstate)) {
        if (!is_limited_)
            return false;
        (void)read_handler_error();
        yield_to_lock();
        total_weight_ -= weight_;
        return true;
    }
    if (weight_ > 1)
        return false;
    const bool is_decided = decide_next(is_items || !is_of_the_server(sqlstate), can_postpone);
    decided_ = -1; // now, and not in another try
    ++failures_;
    return is_decided;
}

bool BatchRun::learn(bool can_postpone) {
    // Before the first item nothing has run that an error could be charged to.
    if (phase_ == Phase::opening || index_ < 0)
        return false;
    was_undone_ = true;
    if (!is_alone_)
        pace_.size = std::max(1, room_ / 2);
    const int sqlstate = geterrcode();
    return phase_ == Phase::running ? learn_from_item(sqlstate, can_postpone)
                                    : learn_from_commit(sqlstate, can_postpone);
}

bool BatchRun::learn_from_item(int sqlstate, bool can_postpone) {
    const bool is_items = running_handler.is_active() || running_handler.is_reading();
    // In this order: an error of a lock is charged to nobody, whatever raised it; a deadlock may be
    // the fault of the batch, so a smaller one is tried first; an item of many messages is divided
    // before one of them is charged. Only then the error is the item's.
    if (is_lock_error(sqlstate) && is_limited_) {
        (void)read_handler_error();
        yield_to_lock();
        end_before_ = id_;
        decided_ = -1;
        return true;
    }
    if (sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED && ++deadlocks_ < deadlocks_max) {
        (void)read_handler_error();
        room_ = 1;
        pause_us_ = static_cast<int64>(pg::random_fraction() * longest_pause_us);
        return true;
    }
    if (weight_ > 1 && decision_ == Decision::run) {
        (void)read_handler_error();
        room_ = weight_ / 2;
        return true;
    }
    // A subtransaction costs each item an xid, and a multixact on the row of its saga.
    pace_.guarded = std::max(pace_.guarded, 1);
    return decide_next(is_items || !is_of_the_server(sqlstate), can_postpone);
}

bool BatchRun::learn_from_commit(int sqlstate, bool can_postpone) {
    // Deferred constraints and serialization failures show at the commit and name no item. Halving
    // finds the item that fails by itself, and keeps apart those that fail only together.
    if (total_weight_ > 1) {
        room_ = total_weight_ / 2;
        pace_.cap = room_;
        pace_.capped_until = pg::steady_now() + cap_time_us;
        decided_ = -1;
        return true;
    }
    pace_.cap = 0; // this item failed alone, not two together
    return decide_next(!is_of_the_server(sqlstate), can_postpone);
}

void BatchRun::committed() {
    if (is_alone_ && total_weight_ == 0) // there was no item
        pace_.next_alone = true;
    if (pace_.guarded > 0)
        --pace_.guarded;
    if (failures_ > 0)
        pace_.guarded = std::max(pace_.guarded, 1);
    if (has_turn && is_turn_over())
        end_turn();
    if (pace_.in_turn > 0) {
        --pace_.in_turn;
    } else if (conflicts_with_workers_ || (waiters_.workers && total_weight_ < few_items)) {
        pace_.in_turn = turns;
        pace_.size = 0;
        return;
    }
    if (waiters_.any && pace_.in_turn == 0)
        pace_.size = std::max(1, 2 * total_weight_);
    else if (!was_undone_ && !is_alone_)
        pace_.size = std::min(pg::settings.batch_size, 2 * std::max(1, room_));
}

} // namespace stacksaga
