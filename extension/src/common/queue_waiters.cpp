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

/// So many of a queue's waiters this transaction wakes.
struct Wake {
    Queue queue;
    size_t steps;
};

/// The list is the transaction's memory.
struct Wanted {
    Wake *list;
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

/// Calls `use` with the processes that wait for the queue, but for this one. The line is in the
/// order of their places in shared memory.
template <class F> void with_others(const Queue &queue, F &&use) {
    const LOCKTAG tag = tag_of(queue);
    int count = 0;
    VirtualTransactionId *waiters = GetLockConflicts(&tag, ExclusiveLock, &count);
    auto **processes =
        static_cast<PGPROC **>(palloc(sizeof(PGPROC *) * static_cast<size_t>(count + 1)));
    const auto end = std::remove(
        processes, std::transform(waiters, waiters + count, processes, pg::process_of), nullptr);
    use(std::span<PGPROC *>{processes, end});
    pfree(processes);
    pfree(waiters);
}

void wake(const Wake &wake) {
    with_others(wake.queue, [&](std::span<PGPROC *> others) {
        const auto end =
            others.begin() + static_cast<ptrdiff_t>(std::min(wake.steps, others.size()));
        std::partial_sort(others.begin(), end, others.end());
        std::for_each(others.begin(), end, [](PGPROC *p) { SetLatch(&p->procLatch); });
    });
}

/// A lock of the session, which an error does not release: it is released before others are woken.
void leave() {
    const Queue queue = *waits_for;
    const LOCKTAG tag = tag_of(queue);
    waits_for.reset();
    LockRelease(&tag, ShareLock, true);
    wake({.queue = queue, .steps = 1});
}

void at_transaction_end(XactEvent event, void *) {
    if (event == XACT_EVENT_ABORT && waits_for)
        leave();
    if (event == XACT_EVENT_COMMIT)
        std::for_each(wanted.list, wanted.list + wanted.count, wake);
    if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
        wanted = {};
}

void watch_transactions() {
    if (!is_registered)
        RegisterXactCallback(at_transaction_end, nullptr);
    is_registered = true;
}

void add(const Wake &added) {
    if (wanted.count == wanted.room) {
        wanted.room = std::max<size_t>(8, 2 * wanted.room);
        auto *list = static_cast<Wake *>(
            MemoryContextAlloc(TopTransactionContext, sizeof(Wake) * wanted.room));
        std::copy(wanted.list, wanted.list + wanted.count, list);
        wanted.list = list;
    }
    wanted.list[wanted.count++] = added;
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
    leave();
}

size_t place_in_line() {
    size_t place = 0;
    with_others(*waits_for, [&](std::span<PGPROC *> others) {
        place = static_cast<size_t>(
            std::count_if(others.begin(), others.end(), [](PGPROC *p) { return p < MyProc; }));
    });
    return place;
}

void wake_waiters_at_commit(int32 ring_id, std::string_view queue) {
    watch_transactions();
    const Queue added = queue_of(ring_id, queue);
    Wake *const end = wanted.list + wanted.count;
    Wake *const known =
        std::find_if(wanted.list, end, [&](const Wake &w) { return w.queue == added; });
    if (known != end)
        ++known->steps;
    else
        add({.queue = added, .steps = 1});
}

} // namespace stacksaga
