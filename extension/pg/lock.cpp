#include "pg/lock.hpp"

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
                   "It would keep the slot locked, whoever should own it.", "Commit it instead."},
    PrepareRefusal{LockClass::outbox, "cannot prepare a transaction that reads the outbox",
                   "It would keep its partitions locked, and nobody else could read them.",
                   "Receive and acknowledge messages in transactions that are committed."},
};

constinit bool is_watching = false;
constinit const PrepareRefusal *refusal = nullptr; ///< of the current transaction

void at_transaction_end(XactEvent event, void *) {
    if (event == XACT_EVENT_PRE_PREPARE && refusal != nullptr)
        ereport(ERROR, (errcode(sg409), errmsg("%s", refusal->message),
                        errdetail("%s", refusal->detail), errhint("%s", refusal->hint)));
    if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
        refusal = nullptr;
}

/// Shared locks of the outbox keep others from altering a subscription, not from reading.
bool forbids_prepare(LockClass lock_class, LOCKMODE mode) {
    return lock_class == LockClass::slot ||
           (lock_class == LockClass::outbox && mode == ExclusiveLock);
}

void refuse_prepare(LockClass lock_class) {
    if (!is_watching) {
        RegisterXactCallback(at_transaction_end, nullptr);
        is_watching = true;
    }
    for (const PrepareRefusal &r : refusals)
        if (r.lock_class == lock_class)
            refusal = &r;
}

} // namespace

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
    if (LockAcquire(&tag, mode, false, !wait) == LOCKACQUIRE_NOT_AVAIL)
        return false;
    if (forbids_prepare(lock_class, mode))
        refuse_prepare(lock_class);
    return true;
}

} // namespace stacksaga::pg
