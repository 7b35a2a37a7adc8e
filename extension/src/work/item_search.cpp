#include "src/work/item_search.hpp"

#include "core/work/commit_horizon.hpp"

#include "pg/settings.hpp"
#include "pg/statement/query.hpp"
#include "src/ring/rings.hpp"
#include "src/saga/saga_tables.hpp"
#include "src/work/slot_search.hpp"

namespace stacksaga {

namespace {

constexpr int32 rotation_step = 97; // odd: it reaches every slot

// Its own slots, and those that services own, who cannot run these items (see fence.cpp).
constinit pg::Statement list_slots{
    "SELECT slot FROM stacksaga.slot WHERE ring_id = $1"
    " AND (owner = $2 OR owner IN (SELECT incarnation FROM stacksaga.node WHERE pid IS NULL))"};

/// For slot_search.hpp: the slots that the node works in, one after the other.
struct WorkerSlots {
    static constexpr bool in_turns = true;
    static constexpr int32 unwanted_max = 0;

    const NodeIdentity &node;
    const int32 ring_id;
    const int32 slots;
    const int32 rotation;
    const TimestampTz now;
    RankProbes &probes;
    LockedSagas &locked;
    static constexpr int64 passed_over = 0;
    pg::IndexReader *sagas = nullptr; ///< to look whether their rows are locked; or it does not
    const bool *may_work = nullptr;   ///< in each slot; read when the first row is found
    bool is_whole = true;
    TimestampTz next_due = DT_NOEND;

    SlotRange slots_of(int16) const { return {0, slots}; }
    TimestampTz begin(int16 rank) { return probes[static_cast<size_t>(rank)].begin(now); }
    void end(int16 rank, TimestampTz, core::SeenTransactions) {
        probes[static_cast<size_t>(rank)].end(now);
    }
    bool may_work_in(int32 slot);
    bool may_take(TupleTableSlot *row) { return note(!pg::is_being_changed(row)); }
    bool takes(const DueItem &item) {
        const bool is_locked =
            locked.has(item.saga_id) || (sagas != nullptr && locked.look(*sagas, item.saga_id));
        return note(!is_locked);
    }
    bool note(bool is_taken) {
        is_whole = is_whole && is_taken;
        return is_taken;
    }
    void note_later(int32 slot, TimestampTz due_at) {
        if (due_at < next_due && may_work_in(slot))
            next_due = due_at;
    }
};

bool WorkerSlots::may_work_in(int32 slot) {
    if (may_work == nullptr) {
        auto *flags = static_cast<bool *>(palloc0(sizeof(bool) * static_cast<size_t>(slots)));
        pg::Rows rows = list_slots.run(pg::param(ring_id), pg::param(node.incarnation));
        for (uint64 i = 0; i < rows.count(); ++i)
            flags[rows.int4(i)] = true;
        may_work = flags;
    }
    return may_work[slot];
}

} // namespace

FoundItems ItemSearch::find(TimestampTz now, MemoryContext memory) {
    if (slots_ == 0)
        slots_ = ring_of_id(node_.ring_id).slots;
    rotation_ = (rotation_ + rotation_step) % slots_;
    const auto limit = static_cast<size_t>(pg::settings.batch_size);
    const size_t size = room_of_list(limit);
    const std::span room{
        static_cast<FoundItem *>(MemoryContextAlloc(memory, sizeof(FoundItem) * size)), size};
    WorkerSlots scope{.node = node_,
                      .ring_id = node_.ring_id,
                      .slots = slots_,
                      .rotation = rotation_,
                      .now = now,
                      .probes = probes_,
                      .locked = locked_};
    FoundItems found{};
    const auto search = [&](pg::IndexReader *sagas) {
        scope.sagas = sagas;
        found.list = search_slots(scope, room, limit);
    };
    locked_.begin_search();
    const bool has_looked =
        locked_.is_expected() && pg::try_index(saga_table, SagaIndex::primary_key,
                                               [&](pg::IndexReader &sagas) { search(&sagas); });
    if (!has_looked)
        search(nullptr);
    locked_.end_search(has_looked);
    found.limit = static_cast<int32>(limit);
    found.is_whole = scope.is_whole && found.list.size() < limit;
    found.next_due = scope.next_due;
    return found;
}

void ItemSearch::settle(TimestampTz now, bool is_drained) {
    for (ProbeMemory &probe : probes_)
        probe.settle(now, is_drained);
}

} // namespace stacksaga
