#include "src/common/waiting_line.hpp"

#include "pg/compat.hpp"

namespace stacksaga {

namespace {

/// The lines of which this transaction wakes a waiter. The list lives in the transaction's memory.
struct Wanted {
    WaitingLine *list;
    size_t count, room;
};
constinit Wanted wanted{};
constinit std::optional<WaitingLine> waits_in{};

LOCKTAG tag_of(const WaitingLine &line) {
    return pg::lock_tag(line.lock_class, line.first, line.second);
}

bool is_same(const LOCKTAG &one, const LOCKTAG &other) {
    return memcmp(&one, &other, sizeof(LOCKTAG)) == 0;
}

/// Calls `visit` with the processes that hold a shared lock in this partition of the lock table,
/// but for this one, and with the tag of each of the locks that `matches`, in the order of their
/// places in shared memory, until it returns false. Allocates nothing and raises nothing, as
/// at_commit demands.
template <class M, class F> void each_holder(int partition, M &&matches, F &&visit) {
    LWLock *lock = LockHashPartitionLockByIndex(partition);
    LWLockAcquire(lock, LW_SHARED);
    bool goes_on = true;
    for (uint32 i = 0; goes_on && i < ProcGlobal->allProcCount; ++i) {
        PGPROC &process = ProcGlobal->allProcs[i];
        if (&process == MyProc || pg::has_no_locks(process, partition))
            continue;
        pg::for_each_lock(process, partition, [&](const PROCLOCK &held) {
            const LOCKTAG &tag = held.tag.myLock->tag;
            if (goes_on && (held.holdMask & LOCKBIT_ON(ShareLock)) != 0 && matches(tag))
                goes_on = visit(process, tag);
        });
    }
    LWLockRelease(lock);
}

/// The same with those that wait in the line.
template <class F> void each_other(const WaitingLine &line, F &&visit) {
    const LOCKTAG tag = tag_of(line);
    // Most commits find nobody waiting, and need not look through all processes for that.
    if (LockWaiterCount(&tag) == 0)
        return;
    each_holder(
        partition_of(line), [&](const LOCKTAG &held) { return is_same(held, tag); },
        [&](PGPROC &process, const LOCKTAG &) { return visit(process); });
}

/// Sets the latch of the first in line. A waiter whose latch is set has not looked yet, so further
/// commits wake no other waiter.
void wake(const WaitingLine &line) {
    each_other(line, [&](PGPROC &process) {
        SetLatch(&process.procLatch);
        return false;
    });
}

/// A lock of the session, which an error does not release: it is released before others are woken.
/// A wake since this session's last look is passed on to the next one.
void leave(bool wakes_next) {
    const WaitingLine line = *waits_in;
    const LOCKTAG tag = tag_of(line);
    waits_in.reset();
    LockRelease(&tag, ShareLock, true);
    if (wakes_next || MyLatch->is_set)
        wake(line);
}

/// The transaction decides before its commit which lines it wakes, and looks for the waiters only
/// now, when other sessions see the commit. A waiter takes its lock first and then looks, with a
/// new snapshot. So this finds each waiter that has its lock by now, and a waiter that takes it
/// later looks later and sees what is due. A list made before the commit would miss a waiter that
/// began to wait, and looked, between the list and the commit.
void wake_all() {
    std::for_each(wanted.list, wanted.list + wanted.count, wake);
}

void leave_after_error() {
    if (waits_in)
        leave(true);
}

void add(const WaitingLine &added) {
    if (wanted.count == wanted.room) {
        wanted.room = std::max<size_t>(8, 2 * wanted.room);
        auto *list = static_cast<WaitingLine *>(
            MemoryContextAlloc(TopTransactionContext, sizeof(WaitingLine) * wanted.room));
        std::copy(wanted.list, wanted.list + wanted.count, list);
        wanted.list = list;
    }
    wanted.list[wanted.count++] = added;
}

} // namespace

constinit const pg::TransactionUser waiting_line_events{
    .at_commit = wake_all,
    .at_abort = leave_after_error,
    .at_end = [] { wanted = {}; },
};

int partition_of(const WaitingLine &line) {
    const LOCKTAG tag = tag_of(line);
    return static_cast<int>(LockHashPartition(LockTagHashCode(&tag)));
}

void begin_waiting(const WaitingLine &line) {
    const LOCKTAG tag = tag_of(line);
    (void)LockAcquire(&tag, ShareLock, true, false);
    waits_in = line;
}

void stop_waiting(bool wakes_next) {
    leave(wakes_next);
}

void wake_first_in_line() {
    wake(*waits_in);
}

void wake_one_behind() {
    each_other(*waits_in, [](PGPROC &process) {
        if (&process > MyProc)
            SetLatch(&process.procLatch);
        return &process < MyProc;
    });
}

size_t place_in_line() {
    size_t place = 0;
    each_other(*waits_in, [&](const PGPROC &process) {
        place += &process < MyProc ? 1 : 0;
        return &process < MyProc;
    });
    return place;
}

void wake_waiters_at_commit(const WaitingLine &line) {
    const std::span<const WaitingLine> known{wanted.list, wanted.count};
    if (std::find(known.begin(), known.end(), line) == known.end())
        add(line);
}

void wake_lines(pg::LockClass lock_class, int partition, bool (*is_wanted)(uint32 first, uint32 of),
                uint32 of) {
    // Where there are more of them, some of their later waiters are woken as well.
    constexpr size_t lines_max = 64;
    std::array<uint32, lines_max> woken;
    size_t count = 0;
    const LOCKTAG of_class = pg::lock_tag(lock_class, 0, 0);
    each_holder(
        partition,
        [&](const LOCKTAG &tag) {
            return tag.locktag_type == of_class.locktag_type &&
                   tag.locktag_field4 == of_class.locktag_field4 &&
                   tag.locktag_field1 == of_class.locktag_field1 &&
                   is_wanted(tag.locktag_field2, of);
        },
        [&](PGPROC &process, const LOCKTAG &tag) {
            uint32 *end = woken.data() + count;
            if (std::find(woken.data(), end, tag.locktag_field3) != end)
                return true;
            if (count < lines_max)
                woken[count++] = tag.locktag_field3;
            SetLatch(&process.procLatch);
            return true;
        });
}

} // namespace stacksaga
