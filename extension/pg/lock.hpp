// Heavyweight locks of the extension's own.
//
// They queue fairly, write no WAL and are gone with a dead session. Advisory locks have another tag
// type, so nobody else's lock can be one of these.
#pragma once
#include "pg/pg.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga::pg {

extern const TransactionUser lock_events; ///< refuses PREPARE where lock() says so

/// The class of a lock; the last field of its tag. The two numbers of a tag are named here.
enum class LockClass : uint16 {
    idempotency_key = 0x5341, ///< the two halves of the key's token
    versioned_value = 0x5342, ///< the two halves of the key's token
    producer = 0x5343,        ///< the two halves of the producer's token
    slot = 0x5347,            ///< ring, slot: the fence
    outbox = 0x5348,          ///< subscription, partition
    queue = 0x534c,           ///< ring, hash of the queue: sessions that wait for its steps
    messages = 0x574d,        ///< topic, subscription: sessions that wait for its messages
    unnamed_queue = 0x554c,   ///< ring, hash of the queue: sessions that claim from it in vain
    queue_limits = 0x514c,    ///< ring, hash of the queue: claims, exclusive where it has limits
    saga_pause = 0x5044,      ///< the halves of the hash of the name: steps that are held back
    saga_tally = 0x534e,      ///< 0, 0: the session that counts the sagas of this database
    span_export = 0x5345,     ///< 0, 0: the session of the daemon that exports spans
    turn = 0x5354,            ///< 0, 0: batches that contend for locks all the time
    worker = 0x5357,          ///< number of a worker, 0
};

LOCKTAG lock_tag(LockClass lock_class, uint32 first, uint32 second, Oid database = MyDatabaseId);

/// Takes the lock to the end of the (sub)transaction. With `wait` as long as lock_timeout allows
/// (55P03 after that); without it, false when it cannot be had at once.
///
/// A transaction that holds slots, or exclusively partitions or the limits of a queue, cannot be
/// prepared (SG409): it would keep them, with no session left to end it.
bool lock(LockClass lock_class, uint32 first, uint32 second, LOCKMODE mode, bool wait);

/// Gives back a shared lock that this transaction took and that protects nothing it has written.
void unlock(LockClass lock_class, uint32 first, uint32 second, LOCKMODE mode);

/// Sessions that wait for a lock of this session's transaction, of any kind: a row that it changed
/// (the lock on its transaction id), a slot, a table.
struct Waiters {
    bool any = false;     ///< except those that wait for their turn
    bool workers = false; ///< some of them are background workers
    bool turn = false;    ///< somebody waits for LockClass::turn
};

/// Takes about half a microsecond.
Waiters find_waiters();

} // namespace stacksaga::pg
