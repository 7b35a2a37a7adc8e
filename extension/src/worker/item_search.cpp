#include "src/worker/item_search.hpp"

#include "pg/function.hpp"
#include "pg/lookup.hpp"
#include "pg/query.hpp"
#include "pg/settings.hpp"
#include "src/ring/ring.hpp"
#include "src/saga/tables.hpp"

namespace stacksaga {

namespace {

constexpr int32 rotation_step = 97; // odd: it reaches every slot

// Columns of the index.
constexpr AttrNumber index_slot = 2;
constexpr AttrNumber index_due_at = 3;

// Its own slots, and those that services own, who cannot run these items (see fence.cpp).
#define SLOTS_TO_WORK_IN                                                                           \
    "stacksaga.slot WHERE ring_id = $1"                                                            \
    " AND (owner = $2 OR owner IN (SELECT incarnation FROM stacksaga.node WHERE pid IS NULL)) "
constinit pg::Statement list_slots{"SELECT slot FROM " SLOTS_TO_WORK_IN};

// The same search where the table is not accessed directly: somebody has partitioned it, say.
constinit pg::Statement find_due{
    "SELECT w.saga_id, w.slot, w.purpose::text, w.step_no, w.direction, w.attempt, w.is_retry"
    "  FROM (SELECT slot FROM " SLOTS_TO_WORK_IN " ORDER BY slot # $6) AS s, LATERAL ("
    "       SELECT saga_id, slot, purpose, step_no, direction, attempt,"
    "              attempt > attempt_base AND lease_until IS NULL AND NOT verifying"
    "              AND queue IS NULL AS is_retry"
    "         FROM stacksaga.work w"
    "        WHERE w.ring_id = $1 AND w.slot = s.slot AND w.due_at >= $3 AND w.due_at <= $4"
    "          AND (w.queue IS NULL OR w.verifying OR w.lease_until IS NOT NULL)"
    "        ORDER BY w.due_at LIMIT $5) AS w"
    " LIMIT $5"};
constinit pg::Statement find_next_due{
    "SELECT min(w.due_at)"
    "  FROM (SELECT slot FROM " SLOTS_TO_WORK_IN ") AS s, LATERAL ("
    "       SELECT due_at FROM stacksaga.work w"
    "        WHERE w.ring_id = $1 AND w.slot = s.slot AND w.due_at > $3"
    "          AND (w.queue IS NULL OR w.verifying OR w.lease_until IS NOT NULL)"
    "        ORDER BY w.due_at LIMIT 1) AS w"};

bool is_null(TupleTableSlot *row, WorkColumn column) {
    return slot_attisnull(row, pg::column_number(column));
}

FoundItem item_of(TupleTableSlot *row) {
    const int32 attempt = DatumGetInt32(value_in(row, WorkColumn::attempt));
    return {.item = {.saga_id = *DatumGetUUIDP(value_in(row, WorkColumn::saga_id)),
                     .slot = DatumGetInt32(value_in(row, WorkColumn::slot)),
                     .purpose = purpose_of(value_in(row, WorkColumn::purpose)),
                     .step_no = DatumGetInt16(value_in(row, WorkColumn::step_no)),
                     .direction = *core::direction_of(
                         pg::view_of_text(value_in(row, WorkColumn::direction))),
                     .attempt = attempt},
            .is_retry = attempt > DatumGetInt32(value_in(row, WorkColumn::attempt_base)) &&
                        is_null(row, WorkColumn::lease_until) &&
                        !DatumGetBool(value_in(row, WorkColumn::verifying)) &&
                        is_null(row, WorkColumn::queue),
            .deferral = std::nullopt};
}

/// One search; by the index, but for find_by_sql().
struct Search {
    const NodeIdentity &node;
    const int32 slots;
    const int32 rotation;
    const TimestampTz from;
    const TimestampTz now;
    const std::span<FoundItem> room;
    FoundItems found{.list = {}, .is_whole = true, .next_due = DT_NOEND};
    bool *is_read = nullptr;        ///< of each slot: nothing more of it is due
    const bool *may_work = nullptr; ///< in each slot; read when the first row is found

    void run(pg::IndexReader &work);

private:
    bool may_work_in(int32 slot);
    int32 seek(pg::IndexReader &work, int32 slot) const;
    void read_slot(pg::IndexReader &work, int32 slot);
    bool is_full() const { return found.list.size() == room.size(); }
};
static_assert(std::is_trivially_destructible_v<Search>);

void Search::run(pg::IndexReader &work) {
    is_read = static_cast<bool *>(palloc0(sizeof(bool) * static_cast<size_t>(slots)));
    for (int32 i = 0; i < slots && !is_full(); ++i) {
        const int32 slot = i ^ rotation; // the number of slots is a power of two
        if (!is_read[slot])
            read_slot(work, slot);
    }
    found.is_whole = found.is_whole && !is_full();
}

bool Search::may_work_in(int32 slot) {
    if (may_work == nullptr) {
        auto *flags = static_cast<bool *>(palloc0(sizeof(bool) * static_cast<size_t>(slots)));
        pg::Rows rows = list_slots.run(pg::param(node.ring_id), pg::param(node.incarnation));
        for (uint64 i = 0; i < rows.count(); ++i)
            flags[rows.int4(i, 0)] = true;
        may_work = flags;
    }
    return may_work[slot];
}

/// To the first row of the slot, from the remembered instant on. Where there is none, to the first
/// row of the next slots that have not been read. Returns the last of these.
int32 Search::seek(pg::IndexReader &work, int32 slot) const {
    const pg::KeyColumn ring{F_INT4EQ, InvalidOid, Int32GetDatum(node.ring_id)};
    if (from != DT_NOBEGIN) {
        work.seek(std::array{ring, pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(slot)},
                             pg::KeyColumn{F_TIMESTAMPTZ_GE, InvalidOid, TimestampTzGetDatum(from),
                                           BTGreaterEqualStrategyNumber, index_due_at}});
        return slot;
    }
    int32 last = slot;
    while (last + 1 < slots && !is_read[last + 1])
        ++last;
    work.seek(std::array{ring,
                         pg::KeyColumn{F_INT4GE, InvalidOid, Int32GetDatum(slot),
                                       BTGreaterEqualStrategyNumber, index_slot},
                         pg::KeyColumn{F_INT4LE, InvalidOid, Int32GetDatum(last),
                                       BTLessEqualStrategyNumber, index_slot}});
    return last;
}

void Search::read_slot(pg::IndexReader &work, int32 slot) {
    int32 end = seek(work, slot) + 1; // of the slots that have nothing due, or nothing more
    while (TupleTableSlot *row = work.next()) {
        const int32 its_slot = DatumGetInt32(value_in(row, WorkColumn::slot));
        const TimestampTz due_at = DatumGetTimestampTz(value_in(row, WorkColumn::due_at));
        if (due_at > now) {
            if (due_at < found.next_due && may_work_in(its_slot))
                found.next_due = due_at;
            end = its_slot + 1;
            break;
        }
        if (its_slot != slot) {
            end = its_slot;
            break;
        }
        if (!may_work_in(slot) || is_full()) {
            end = slot + 1;
            break;
        }
        if (pg::is_being_changed(row)) {
            found.is_whole = false;
            continue;
        }
        found.list = room.first(found.list.size() + 1);
        found.list.back() = item_of(row);
    }
    std::fill(is_read + slot, is_read + end, true);
}

FoundItem item_of(const pg::Rows &rows, uint64 row) {
    return {.item = {.saga_id = rows.uuid(row, 0),
                     .slot = rows.int4(row, 1),
                     .purpose = *core::work_purpose_of(rows.text(row, 2)),
                     .step_no = rows.int2(row, 3),
                     .direction = *core::direction_of(rows.text(row, 4)),
                     .attempt = rows.int4(row, 5)},
            .is_retry = rows.boolean(row, 6),
            .deferral = std::nullopt};
}

void find_by_sql(Search &search) {
    const pg::Param ring = pg::param(search.node.ring_id);
    const pg::Param owner = pg::param(search.node.incarnation);
    pg::Rows rows =
        find_due.run(ring, owner, pg::param_time(search.from), pg::param_time(search.now),
                     pg::param(static_cast<int64>(search.room.size())), pg::param(search.rotation));
    for (uint64 row = 0; row < rows.count(); ++row)
        search.room[row] = item_of(rows, row);
    search.found.list = search.room.first(rows.count());
    search.found.is_whole = rows.count() < search.room.size();
    if (rows.empty()) {
        pg::Rows next = find_next_due.run(ring, owner, pg::param_time(search.now));
        search.found.next_due = next.optional_time(0, 0).value_or(DT_NOEND);
    }
}

} // namespace

FoundItems ItemSearch::find(TimestampTz now, MemoryContext memory) {
    if (slots_ == 0)
        slots_ = ring_of_id(node_.ring_id).slots;
    rotation_ = (rotation_ + rotation_step) % slots_;
    const auto limit = static_cast<size_t>(pg::settings.batch_size);
    auto *room = static_cast<FoundItem *>(MemoryContextAlloc(memory, sizeof(FoundItem) * limit));
    Search search{.node = node_,
                  .slots = slots_,
                  .rotation = rotation_,
                  .from = probe_.begin(now),
                  .now = now,
                  .room = {room, limit}};
    auto read = [&](pg::IndexReader &work) { search.run(work); };
    if (work_table.obstacle() != nullptr || !pg::with_index("work", "work_for_workers", read))
        find_by_sql(search);
    probe_.end(now);
    return search.found;
}

} // namespace stacksaga
