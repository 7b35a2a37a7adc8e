#include "src/outbox/log_lock.hpp"

#include "pg/errors.hpp"

namespace stacksaga {

namespace {

// The last field of our lock tags; the fence has another one.
constexpr uint16 tag_class = 0x5348;
constexpr uint32 ticking = 0;              // subscriptions count from 1, this is no subscription
constexpr uint32 settings = PG_UINT16_MAX; // of a subscription, this is no partition

constinit bool is_watching = false;
constinit bool holds_lock = false;

/// A prepared transaction would keep its locks, with no session left to end it.
void at_transaction_end(XactEvent event, void *) {
    if (event == XACT_EVENT_PRE_PREPARE && holds_lock)
        ereport(ERROR,
                (errcode(pg::sg409), errmsg("cannot prepare a transaction that reads the outbox"),
                 errdetail("It would keep its partitions locked, and nobody else could read them."),
                 errhint("Receive and acknowledge messages in transactions that are committed.")));
    if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
        holds_lock = false;
}

bool lock(uint32 subscription_id, uint32 partition, LOCKMODE mode, bool wait) {
    if (!is_watching) {
        RegisterXactCallback(at_transaction_end, nullptr);
        is_watching = true;
    }
    LOCKTAG tag{};
    tag.locktag_field1 = MyDatabaseId;
    tag.locktag_field2 = subscription_id;
    tag.locktag_field3 = partition;
    tag.locktag_field4 = tag_class;
    tag.locktag_type = LOCKTAG_USERLOCK;
    tag.locktag_lockmethodid = USER_LOCKMETHOD;
    if (LockAcquire(&tag, mode, false, !wait) == LOCKACQUIRE_NOT_AVAIL)
        return false;
    holds_lock = holds_lock || mode == ExclusiveLock;
    return true;
}

} // namespace

bool lock_ticking() {
    return lock(ticking, 0, ExclusiveLock, false);
}

bool lock_tending() {
    return lock(ticking, 1, ExclusiveLock, false);
}

void lock_out_tending() {
    lock(ticking, 1, ShareLock, true);
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

} // namespace stacksaga
