#include "src/ring/fence.hpp"

#include "core/ring/ring_settings.hpp"
#include "core/ring/slot_owner.hpp"

#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/lock.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/select.hpp"

namespace stacksaga {

namespace {

// A service that owns a slot claims from queues and cannot run what only a background worker can,
// so any background worker may work in its slots; the fence holds against the next owner all the
// same. An agent's part is no window: it does not concern the other nodes. The last column is null
// in a ring that keeps its owners without a window.
enum class OwnerColumn : uint8_t { slot, owner, epoch, next_owner, next_from, has_window };
constinit pg::Select<OwnerColumn> read_owners{
    "SELECT s.slot, s.owner, s.epoch, s.next_owner, s.next_from,"
    "       CASE WHEN EXISTS (SELECT FROM stacksaga.ring_setting r"
    "                          WHERE r.ring_id = $1 AND r.setting = 'on_missing_window'"
    "                            AND r.value = 'pause')"
    "            THEN EXISTS (SELECT FROM stacksaga.token_window w"
    "                          WHERE w.ring_id = $1 AND w.agent = ''"
    "                            AND w.window_start <= $4 AND w.window_end > $4) END"
    "       AS has_window"
    "  FROM stacksaga.slot s, stacksaga.node n"
    " WHERE s.ring_id = $1 AND s.slot = ANY ($2) AND n.incarnation = $3"
    "   AND (s.owner = $3 OR n.pid IS NOT NULL AND EXISTS ("
    "          SELECT FROM stacksaga.node o WHERE o.incarnation = s.owner AND o.pid IS NULL))"};

bool is_open(const pg::RowsOf<OwnerColumn> &rows, uint64 row, TimestampTz now) {
    using Column = OwnerColumn;
    const core::SlotOwner slot{
        .owner = rows.int8(row, Column::owner),
        .epoch = rows.int8(row, Column::epoch),
        .next_owner = rows.optional_int8(row, Column::next_owner).value_or(core::no_owner),
        .next_from = rows.optional_time(row, Column::next_from).value_or(0)};
    const bool pauses = !rows.is_null(row, Column::has_window);
    return core::is_open(slot, pauses ? core::MissingWindow::pause : core::MissingWindow::keep,
                         pauses && rows.boolean(row, Column::has_window), now);
}

bool lock_slot(int32 ring_id, int32 slot, LOCKMODE mode, bool wait) {
    return pg::lock(pg::LockClass::slot, static_cast<uint32>(ring_id), static_cast<uint32>(slot),
                    mode, wait);
}

} // namespace

void lock_slots(const NodeIdentity &node, std::span<const int32> slots, std::span<bool> owned,
                std::span<const int64> epochs) {
    Assert(owned.size() == slots.size() && (epochs.empty() || epochs.size() == slots.size()));
    auto *locked = static_cast<int32 *>(palloc(sizeof(int32) * std::max<size_t>(slots.size(), 1)));
    size_t count = 0;
    // Lock first, then read. A taker holds the exclusive lock until its new owner is committed, so
    // an owner that is read under the shared lock stays until this transaction ends. Read before
    // the lock, it might change while this worker works in the slot: two nodes would do the same
    // items. Ascending, as takers lock them too; and without waiting, since a worker that queued
    // behind a taker would hold its other slots back from every other taker meanwhile.
    for (size_t i = 0; i < slots.size(); ++i) {
        Assert(i == 0 || slots[i - 1] < slots[i]);
        owned[i] = false;
        if (lock_slot(node.ring_id, slots[i], ShareLock, false))
            locked[count++] = slots[i];
    }
    if (count == 0)
        return;
    // A statement of its own, and the clock after the locks: its snapshot sees the commit of a
    // taker that has just released the lock. A statement that locked and read would have its
    // snapshot from before the lock.
    const TimestampTz now = pg::clock_now();
    const auto rows = read_owners.run(pg::param(node.ring_id),
                                      pg::param_array(std::span<const int32>{locked, count}),
                                      pg::param(node.incarnation), pg::param_time(now));
    for (uint64 row = 0; row < rows.count(); ++row) {
        auto found =
            std::lower_bound(slots.begin(), slots.end(), rows.int4(row, OwnerColumn::slot));
        auto i = static_cast<size_t>(found - slots.begin());
        // The epoch changes with each owner. So a slot that left this node and came back since the
        // caller looked is not taken for the one that it looked at.
        owned[i] = (epochs.empty() || epochs[i] == rows.int8(row, OwnerColumn::epoch)) &&
                   is_open(rows, row, now);
    }
}

bool lock_slot_exclusively(int32 ring_id, int32 slot, bool wait) {
    return lock_slot(ring_id, slot, ExclusiveLock, wait);
}

bool holds_slot_exclusively(int32 ring_id, int32 slot) {
    return pg::holds_lock(
        pg::lock_tag(pg::LockClass::slot, static_cast<uint32>(ring_id), static_cast<uint32>(slot)),
        ExclusiveLock);
}

} // namespace stacksaga
