#include "src/ring/fence.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/query.hpp"

namespace stacksaga {

namespace {

// The last field of our lock tags. Advisory locks are another tag type, so nobody else's lock can
// be one of ours.
constexpr uint16 tag_class = 0x5347;

// The window condition reads as: the ring does not pause; or a window is open, and it does not give
// the slot to another. An agent's part is no window: it says nothing of what the others may do.
// A service that owns a slot claims from queues and cannot run what only a background worker can,
// so in its slots any of those may work; they hold the fence against the next owner all the same.
constinit pg::Statement read_owners{
    "SELECT s.slot, s.epoch FROM stacksaga.slot s, stacksaga.node n"
    " WHERE s.ring_id = $1 AND s.slot = ANY ($2) AND n.incarnation = $3"
    "   AND (s.owner = $3 OR n.pid IS NOT NULL AND EXISTS ("
    "          SELECT FROM stacksaga.node o WHERE o.incarnation = s.owner AND o.pid IS NULL))"
    "   AND (NOT EXISTS (SELECT FROM stacksaga.ring_setting r"
    "                     WHERE r.ring_id = $1 AND r.setting = 'on_missing_window'"
    "                       AND r.value = 'pause')"
    "        OR (EXISTS (SELECT FROM stacksaga.token_window w"
    "                     WHERE w.ring_id = $1 AND w.agent = ''"
    "                       AND w.window_start <= $4 AND w.window_end > $4)"
    "            AND (s.next_owner IS NULL OR s.next_owner = s.owner OR s.next_from > $4)))"};

LOCKTAG tag_of(int32 ring_id, int32 slot) {
    LOCKTAG tag{};
    tag.locktag_field1 = MyDatabaseId;
    tag.locktag_field2 = static_cast<uint32>(ring_id);
    tag.locktag_field3 = static_cast<uint32>(slot);
    tag.locktag_field4 = tag_class;
    tag.locktag_type = LOCKTAG_USERLOCK;
    tag.locktag_lockmethodid = USER_LOCKMETHOD;
    return tag;
}

constinit bool is_watching = false;
constinit bool holds_fence = false;

/// A prepared transaction would keep its slots, with no session left to end it.
void at_transaction_end(XactEvent event, void *) {
    if (event == XACT_EVENT_PRE_PREPARE && holds_fence)
        ereport(ERROR,
                (errcode(pg::sg409), errmsg("cannot prepare a transaction that works in a slot"),
                 errdetail("It would keep the slot locked, whoever should own it."),
                 errhint("Commit it instead.")));
    if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
        holds_fence = false;
}

bool lock_slot(int32 ring_id, int32 slot, LOCKMODE mode, bool wait) {
    if (!is_watching) {
        RegisterXactCallback(at_transaction_end, nullptr);
        is_watching = true;
    }
    LOCKTAG tag = tag_of(ring_id, slot);
    if (LockAcquire(&tag, mode, false, !wait) == LOCKACQUIRE_NOT_AVAIL)
        return false;
    holds_fence = true;
    return true;
}

} // namespace

void lock_slots(const NodeIdentity &node, std::span<const int32> slots, std::span<bool> owned,
                std::span<const int64> epochs) {
    Assert(owned.size() == slots.size() && (epochs.empty() || epochs.size() == slots.size()));
    auto *locked = static_cast<int32 *>(palloc(sizeof(int32) * std::max<size_t>(slots.size(), 1)));
    size_t count = 0;
    for (size_t i = 0; i < slots.size(); ++i) {
        Assert(i == 0 || slots[i - 1] < slots[i]);
        owned[i] = false;
        if (lock_slot(node.ring_id, slots[i], ShareLock, false))
            locked[count++] = slots[i];
    }
    if (count == 0)
        return;
    pg::Rows rows = read_owners.run(pg::param(node.ring_id),
                                    pg::param_array(std::span<const int32>{locked, count}),
                                    pg::param(node.incarnation), pg::param_time(pg::clock_now()));
    for (uint64 row = 0; row < rows.count(); ++row) {
        auto found = std::lower_bound(slots.begin(), slots.end(), rows.int4(row, 0));
        auto i = static_cast<size_t>(found - slots.begin());
        owned[i] = epochs.empty() || epochs[i] == rows.int8(row, 1);
    }
}

bool lock_slot_exclusively(int32 ring_id, int32 slot, bool wait) {
    return lock_slot(ring_id, slot, ExclusiveLock, wait);
}

} // namespace stacksaga
