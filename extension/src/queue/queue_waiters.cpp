#include "src/queue/queue_waiters.hpp"

#include "pg/compat.hpp"
#include "pg/lock.hpp"

namespace stacksaga {

namespace {

struct Queue {
    uint32 ring_id;
    uint32 hash;
    friend constexpr bool operator==(const Queue &, const Queue &) = default;
};

/// The queues of which this transaction wakes a waiter. The list lives in the transaction's memory.
struct Wanted {
    Queue *list;
    size_t count, room;
};
constinit Wanted wanted{};
constinit std::optional<Queue> waits_for{};

Queue queue_of(int32 ring_id, std::string_view name) {
    return {static_cast<uint32>(ring_id),
            hash_bytes(reinterpret_cast<const unsigned char *>(name.data()),
                       static_cast<int>(name.size()))};
}

LOCKTAG tag_of(const Queue &queue) {
    return pg::lock_tag(pg::LockClass::queue, queue.ring_id, queue.hash);
}

bool is_same(const LOCKTAG &one, const LOCKTAG &other) {
    return memcmp(&one, &other, sizeof(LOCKTAG)) == 0;
}

/// Calls `visit` with the processes that wait for the queue, but for this one, in the order of
/// their places in shared memory, until it returns false. Allocates nothing and raises nothing, as
/// at_commit demands.
template <class F> void each_other(const Queue &queue, F &&visit) {
    const LOCKTAG tag = tag_of(queue);
    // Most commits find nobody waiting, and need not look through all processes for that.
    if (LockWaiterCount(&tag) == 0)
        return;
    const uint32 hash = LockTagHashCode(&tag);
    LWLock *lock = LockHashPartitionLock(hash);
    LWLockAcquire(lock, LW_SHARED);
    bool goes_on = true;
    for (uint32 i = 0; goes_on && i < ProcGlobal->allProcCount; ++i) {
        PGPROC &process = ProcGlobal->allProcs[i];
        if (&process == MyProc || pg::has_no_locks(process, LockHashPartition(hash)))
            continue;
        bool waits = false;
        pg::for_each_lock(process, LockHashPartition(hash), [&](const PROCLOCK &held) {
            waits = waits || (is_same(held.tag.myLock->tag, tag) &&
                              (held.holdMask & LOCKBIT_ON(ShareLock)) != 0);
        });
        goes_on = !waits || visit(process);
    }
    LWLockRelease(lock);
}

/// Sets the latch of the first in line. A waiter whose latch is set has not looked yet, so further
/// commits wake no other waiter.
void wake(const Queue &queue) {
    each_other(queue, [&](PGPROC &process) {
        SetLatch(&process.procLatch);
        return false;
    });
}

/// A lock of the session, which an error does not release: it is released before others are woken.
/// A wake since this session's last look is passed on to the next one.
void leave(bool wakes_next) {
    const Queue queue = *waits_for;
    const LOCKTAG tag = tag_of(queue);
    waits_for.reset();
    LockRelease(&tag, ShareLock, true);
    if (wakes_next || MyLatch->is_set)
        wake(queue);
}

/// The transaction decides before its commit which queues it wakes, and looks for the waiters only
/// now, when other sessions see the commit. A waiter takes its lock first and then looks, with a
/// new snapshot. So this finds each waiter that has its lock by now, and a waiter that takes it
/// later looks later and sees the step. A list made before the commit would miss a waiter that
/// began to wait, and looked, between the list and the commit.
void wake_all() {
    std::for_each(wanted.list, wanted.list + wanted.count, wake);
}

void leave_after_error() {
    if (waits_for)
        leave(true);
}

void add(const Queue &added) {
    if (wanted.count == wanted.room) {
        wanted.room = std::max<size_t>(8, 2 * wanted.room);
        auto *list = static_cast<Queue *>(
            MemoryContextAlloc(TopTransactionContext, sizeof(Queue) * wanted.room));
        std::copy(wanted.list, wanted.list + wanted.count, list);
        wanted.list = list;
    }
    wanted.list[wanted.count++] = added;
}

} // namespace

constinit const pg::TransactionUser queue_waiter_events{
    .at_commit = wake_all,
    .at_abort = leave_after_error,
    .at_end = [] { wanted = {}; },
};

void begin_waiting(int32 ring_id, std::string_view queue) {
    const Queue wanted_one = queue_of(ring_id, queue);
    const LOCKTAG tag = tag_of(wanted_one);
    (void)LockAcquire(&tag, ShareLock, true, false);
    waits_for = wanted_one;
}

void stop_waiting(bool wakes_next) {
    leave(wakes_next);
}

void wake_first_in_line() {
    wake(*waits_for);
}

size_t place_in_line() {
    size_t place = 0;
    each_other(*waits_for, [&](const PGPROC &process) {
        place += &process < MyProc ? 1 : 0;
        return &process < MyProc;
    });
    return place;
}

void wake_waiters_at_commit(int32 ring_id, std::string_view queue) {
    const Queue added = queue_of(ring_id, queue);
    const std::span<const Queue> known{wanted.list, wanted.count};
    if (std::find(known.begin(), known.end(), added) == known.end())
        add(added);
}

} // namespace stacksaga
