#include "src/common/queue_waiters.hpp"

#include "pg/compat.hpp"
#include "pg/lock.hpp"

namespace stacksaga {

namespace {

struct Queue {
    uint32 ring_id;
    uint32 hash;
    friend constexpr bool operator==(const Queue &, const Queue &) = default;
};

/// The queues whose waiters this transaction wakes; the list is the transaction's memory.
struct Wanted {
    Queue *list;
    size_t count, room;
};
constinit Wanted wanted{};
constinit std::optional<Queue> waits_for{};
constinit bool is_registered = false;

Queue queue_of(int32 ring_id, std::string_view name) {
    return {static_cast<uint32>(ring_id),
            hash_bytes(reinterpret_cast<const unsigned char *>(name.data()),
                       static_cast<int>(name.size()))};
}

LOCKTAG tag_of(const Queue &queue) {
    return pg::lock_tag(pg::LockClass::queue, queue.ring_id, queue.hash);
}

void wake(const Queue &queue) {
    const LOCKTAG tag = tag_of(queue);
    int count = 0;
    VirtualTransactionId *waiters = GetLockConflicts(&tag, ExclusiveLock, &count);
    for (int i = 0; i < count; ++i)
        if (PGPROC *process = pg::process_of(waiters[i]); process != nullptr)
            SetLatch(&process->procLatch);
}

/// A lock of the session, because waiting spans transactions; an error does not release it.
void release() {
    const LOCKTAG tag = tag_of(*waits_for);
    waits_for.reset();
    LockRelease(&tag, ShareLock, true);
}

void at_transaction_end(XactEvent event, void *) {
    if (event == XACT_EVENT_ABORT && waits_for)
        release();
    if (event == XACT_EVENT_COMMIT)
        for (size_t i = 0; i < wanted.count; ++i)
            wake(wanted.list[i]);
    if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
        wanted = {};
}

void watch_transactions() {
    if (!is_registered)
        RegisterXactCallback(at_transaction_end, nullptr);
    is_registered = true;
}

} // namespace

void begin_waiting(int32 ring_id, std::string_view queue) {
    watch_transactions();
    const Queue wanted_one = queue_of(ring_id, queue);
    const LOCKTAG tag = tag_of(wanted_one);
    (void)LockAcquire(&tag, ShareLock, true, false);
    waits_for = wanted_one;
}

void stop_waiting() {
    release();
}

void wake_waiters_at_commit(int32 ring_id, std::string_view queue) {
    watch_transactions();
    const Queue added = queue_of(ring_id, queue);
    if (std::find(wanted.list, wanted.list + wanted.count, added) != wanted.list + wanted.count)
        return;
    if (wanted.count == wanted.room) {
        wanted.room = std::max<size_t>(8, 2 * wanted.room);
        auto *list = static_cast<Queue *>(
            MemoryContextAlloc(TopTransactionContext, sizeof(Queue) * wanted.room));
        std::copy(wanted.list, wanted.list + wanted.count, list);
        wanted.list = list;
    }
    wanted.list[wanted.count++] = added;
}

} // namespace stacksaga
