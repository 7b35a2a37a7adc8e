#include "pg/lock.hpp"

#include "pg/client.hpp"
#include "pg/compat.hpp"
#include "pg/errors.hpp"

namespace stacksaga::pg {

namespace {

/// Why a transaction that holds a lock of some class cannot be prepared.
struct PrepareRefusal {
    LockClass lock_class;
    const char *message;
    const char *detail;
    const char *hint;
};

constexpr std::array refusals{
    PrepareRefusal{LockClass::slot, "cannot prepare a transaction that works in a slot",
                   "The prepared transaction would keep the slot locked and block any new owner.",
                   "Commit it instead."},
    PrepareRefusal{LockClass::outbox, "cannot prepare a transaction that reads the outbox",
                   "It would keep its partitions locked, and nobody else could read them.",
                   "Receive and acknowledge messages in transactions that are committed."},
    PrepareRefusal{LockClass::queue_limits,
                   "cannot prepare a transaction that claims from a queue with limits",
                   "It would keep the queue locked, and nobody else could claim from it.",
                   "Claim steps in transactions that are committed."},
};

constinit const PrepareRefusal *refusal = nullptr; ///< of the current transaction

void check_prepare() {
    if (refusal != nullptr)
        ereport(ERROR, (errcode(sg409), errmsg("%s", refusal->message),
                        errdetail("%s", refusal->detail), errhint("%s", refusal->hint)));
}

/// Shared locks of the outbox and of a queue keep others from altering a subscription or limits,
/// not from reading and claiming.
bool forbids_prepare(LockClass lock_class, LOCKMODE mode) {
    return lock_class == LockClass::slot ||
           ((lock_class == LockClass::outbox || lock_class == LockClass::queue_limits) &&
            mode == ExclusiveLock);
}

void refuse_prepare(LockClass lock_class) {
    for (const PrepareRefusal &r : refusals)
        if (r.lock_class == lock_class)
            refusal = &r;
}

/// Whether somebody waits for a mode that conflicts with what this process holds of the lock.
bool is_awaited(const PROCLOCK &held) {
    const LOCK &lock = *held.tag.myLock;
    if (lock.waitMask == 0)
        return false;
    const LOCKMASK *conflicts = GetLocksMethodTable(&lock)->conflictTab;
    for (int mode = 1; mode <= MaxLockMode; ++mode)
        if ((held.holdMask & LOCKBIT_ON(mode)) != 0 && (conflicts[mode] & lock.waitMask) != 0)
            return true;
    return false;
}

bool is_turn(const LOCKTAG &tag) {
    return tag.locktag_type == LOCKTAG_USERLOCK &&
           tag.locktag_field4 == static_cast<uint16>(LockClass::turn);
}

void add_waiters(LOCK &lock, Waiters &waiters) {
    if (is_turn(lock.tag)) {
        waiters.turn = true;
        return;
    }
    waiters.any = true;
    for_each_waiter(lock, [&](const PGPROC &process) {
        waiters.workers = waiters.workers || may_be_background_worker(process);
    });
}

} // namespace

constinit const TransactionUser lock_events{
    .before_prepare = check_prepare,
    .at_end = [] { refusal = nullptr; },
};

LOCKTAG lock_tag(LockClass lock_class, uint32 first, uint32 second, Oid database) {
    LOCKTAG tag{};
    tag.locktag_field1 = database;
    tag.locktag_field2 = first;
    tag.locktag_field3 = second;
    tag.locktag_field4 = static_cast<uint16>(lock_class);
    tag.locktag_type = LOCKTAG_USERLOCK;
    // The other lock method's session locks do not survive the abort of a transaction.
    tag.locktag_lockmethodid = USER_LOCKMETHOD;
    return tag;
}

bool lock(LockClass lock_class, uint32 first, uint32 second, LOCKMODE mode, bool wait) {
    const LOCKTAG tag = lock_tag(lock_class, first, second);
    if (LockAcquire(&tag, mode, false, true) == LOCKACQUIRE_NOT_AVAIL) {
        if (!wait)
            return false;
        watching_client([&] { (void)LockAcquire(&tag, mode, false, false); });
    }
    if (forbids_prepare(lock_class, mode))
        refuse_prepare(lock_class);
    return true;
}

void unlock(LockClass lock_class, uint32 first, uint32 second, LOCKMODE mode) {
    const LOCKTAG tag = lock_tag(lock_class, first, second);
    LockRelease(&tag, mode, false);
}

Waiters find_waiters() {
    Waiters waiters{};
    for (int partition = 0; partition < NUM_LOCK_PARTITIONS; ++partition) {
        // Others add to the list only what we hold already, and we look again after the next item.
        if (has_no_locks(*MyProc, partition))
            continue;
        LWLock *lock = LockHashPartitionLockByIndex(partition);
        LWLockAcquire(lock, LW_SHARED);
        for_each_lock(*MyProc, partition, [&](const PROCLOCK &held) {
            if (is_awaited(held))
                add_waiters(*held.tag.myLock, waiters);
        });
        LWLockRelease(lock);
    }
    return waiters;
}

} // namespace stacksaga::pg
