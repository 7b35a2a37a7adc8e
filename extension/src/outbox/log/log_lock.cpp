#include "src/outbox/log/log_lock.hpp"

#include "pg/lock.hpp"
#include "pg/statement/attempt.hpp"

namespace stacksaga {

namespace {

constexpr uint32 ticking = 0;              // subscriptions count from 1, this is no subscription
constexpr uint32 settings = PG_UINT16_MAX; // of a subscription, this is no partition

bool lock(uint32 subscription_id, uint32 partition, LOCKMODE mode, bool wait) {
    return pg::lock(pg::LockClass::outbox, subscription_id, partition, mode, wait);
}

} // namespace

bool lock_ticking(bool wait) {
    return lock(ticking, 0, ExclusiveLock, wait);
}

bool lock_maintenance() {
    return lock(ticking, 1, ExclusiveLock, false);
}

bool lock_next_maintenance() {
    return lock(ticking, 2, ExclusiveLock, false);
}

void unlock_ticking() {
    pg::unlock(pg::LockClass::outbox, ticking, 0, ExclusiveLock);
}

void wait_for_ticking(int timeout_ms) {
    pg::attempt(timeout_ms, [] {
        lock_ticking(true);
        unlock_ticking();
    });
}

void lock_out_maintenance() {
    lock(ticking, 1, ShareLock, true);
}

bool lock_out_maintenance(int timeout_ms) {
    if (lock(ticking, 1, ShareLock, false))
        return true;
    pg::attempt(timeout_ms, [] {
        lock(ticking, 1, ShareLock, true);
        let_maintenance_in();
    });
    // Once more: a lock of the subtransaction would belong to another resource owner after it.
    return lock(ticking, 1, ShareLock, false);
}

void let_maintenance_in() {
    pg::unlock(pg::LockClass::outbox, ticking, 1, ShareLock);
}

bool wait_for_holders(Oid table, int timeout_ms) {
    LOCKTAG tag;
    SET_LOCKTAG_RELATION(tag, MyDatabaseId, table);
    int count = 0;
    VirtualTransactionId *holders = GetLockConflicts(&tag, AccessExclusiveLock, &count);
    return pg::attempt(timeout_ms, [&] {
        for (int i = 0; i < count; ++i)
            (void)VirtualXactLock(holders[i], true);
    });
}

bool hold_settings(int32 subscription_id, bool wait) {
    return lock(static_cast<uint32>(subscription_id), settings, ShareLock, wait);
}

void lock_settings(int32 subscription_id) {
    lock(static_cast<uint32>(subscription_id), settings, ExclusiveLock, true);
}

bool lock_partition(int32 subscription_id, int16 partition, bool wait) {
    return lock(static_cast<uint32>(subscription_id), static_cast<uint32>(partition), ExclusiveLock,
                wait);
}

bool is_partition_locked(int32 subscription_id, int16 partition) {
    const LOCKTAG tag = pg::lock_tag(pg::LockClass::outbox, static_cast<uint32>(subscription_id),
                                     static_cast<uint32>(partition));
    return LockWaiterCount(&tag) > 0;
}

} // namespace stacksaga
