#include "src/work/item_search.hpp"

#include "core/queue/claim_order.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/work_purpose.hpp"

#include "pg/settings.hpp"
#include "pg/statement/query.hpp"
#include "src/ring/rings.hpp"
#include "src/saga/saga_tables.hpp"
#include "src/work/work_table.hpp"
#include "src/work/worker_index.hpp"

namespace stacksaga {

namespace {

constexpr int32 rotation_step = 97; // odd: it reaches every slot

// Its own slots, and those that services own, who cannot run these items (see fence.cpp).
#define SLOTS_TO_WORK_IN                                                                           \
    "stacksaga.slot WHERE ring_id = $1"                                                            \
    " AND (owner = $2 OR owner IN (SELECT incarnation FROM stacksaga.node WHERE pid IS NULL)) "
constinit pg::Statement list_slots{"SELECT slot FROM " SLOTS_TO_WORK_IN};

constinit pg::Statement list_ranks{
    "SELECT r.rank::smallint FROM generate_series(0, 5) AS r(rank), LATERAL ("
    "       SELECT FROM stacksaga.work w"
    "        WHERE w.ring_id = $1" IS_OF_RANK("r.rank::smallint") " LIMIT 1) AS w",
    pg::Reads::this_node};

// The same search where the table is not accessed directly: somebody has partitioned it, or Citus
// manages it.
#define FIND_DUE(OF_ITS_RANK)                                                                      \
    "SELECT w.saga_id, w.slot, w.purpose::text, w.step_no, w.direction, w.attempt, w.is_retry,"    \
    "       w.due_at"                                                                              \
    "  FROM (SELECT slot FROM " SLOTS_TO_WORK_IN " ORDER BY slot # $6) AS s, LATERAL ("            \
    "       SELECT saga_id, slot, purpose, step_no, direction, attempt, due_at,"                   \
    "              attempt > attempt_base AND lease_until IS NULL AND NOT verifying"               \
    "              AND queue IS NULL AS is_retry"                                                  \
    "         FROM stacksaga.work w"                                                               \
    "        WHERE w.ring_id = $1 AND w.slot = s.slot AND w.due_at >= $3 AND w.due_at <= $4"       \
    "" OF_ITS_RANK " ORDER BY w.due_at LIMIT $5) AS w"                                             \
    " LIMIT $5"
constinit pg::Statement find_due_usual{FIND_DUE(IS_OF_USUAL_RANK), pg::Reads::this_node};
constinit pg::Statement find_due_of_rank{FIND_DUE(IS_OF_RANK("$7")), pg::Reads::this_node};
#define FIND_NEXT_DUE(OF_ITS_RANK)                                                                 \
    "SELECT min(w.due_at)"                                                                         \
    "  FROM (SELECT slot FROM " SLOTS_TO_WORK_IN ") AS s, LATERAL ("                               \
    "       SELECT due_at FROM stacksaga.work w"                                                   \
    "        WHERE w.ring_id = $1 AND w.slot = s.slot AND w.due_at > $3" OF_ITS_RANK               \
    "        ORDER BY w.due_at LIMIT 1) AS w"
constinit pg::Statement find_next_due_usual{FIND_NEXT_DUE(IS_OF_USUAL_RANK), pg::Reads::this_node};
constinit pg::Statement find_next_due_of_rank{FIND_NEXT_DUE(IS_OF_RANK("$4")),
                                              pg::Reads::this_node};

/// What a search has to know.
struct Search {
    const NodeIdentity &node;
    const int32 slots;
    const int32 rotation;
    const TimestampTz now;
    RankProbes &probes;
    LockedSagas &locked;
    FoundItems found{.list = {}, .limit = 0, .is_whole = true, .next_due = DT_NOEND};
};

/// A search by the indexes.
class IndexSearch {
public:
    /// `sagas`: by which it looks whether their rows are locked; nullptr: it does not.
    IndexSearch(Search &search, const WorkerIndex &usual, const WorkerIndex &by_rank,
                pg::IndexReader *sagas)
        : search_(search), usual_(usual), by_rank_(by_rank), sagas_(sagas),
          is_read_(static_cast<bool *>(palloc(sizeof(bool) * static_cast<size_t>(search.slots)))) {}

    /// The first due items of the rank, slot by slot.
    size_t read(int16 rank, std::span<FoundItem> room);

private:
    bool may_work_in(int32 slot);
    int32 seek(int32 slot) const;
    void read_slot(int32 slot);
    bool is_full() const { return count_ == room_.size(); }
    bool is_locked(TupleTableSlot *row) const;

    Search &search_;
    WorkerIndex usual_;
    WorkerIndex by_rank_;
    pg::IndexReader *sagas_;
    bool *is_read_;                  ///< of each slot: nothing more of it is due
    const bool *may_work_ = nullptr; ///< in each slot; read when the first row is found
    // Of the rank that is read.
    int16 rank_ = 0;
    TimestampTz from_ = DT_NOBEGIN;
    std::span<FoundItem> room_{};
    size_t count_ = 0;
};
static_assert(std::is_trivially_destructible_v<IndexSearch>);

size_t IndexSearch::read(int16 rank, std::span<FoundItem> room) {
    ProbeMemory &probe = search_.probes[static_cast<size_t>(rank)];
    rank_ = rank;
    from_ = probe.begin(search_.now);
    room_ = room;
    count_ = 0;
    std::fill_n(is_read_, search_.slots, false);
    for (int32 i = 0; i < search_.slots && !is_full(); ++i) {
        const int32 slot = i ^ search_.rotation; // the number of slots is a power of two
        if (!is_read_[slot])
            read_slot(slot);
    }
    probe.end(search_.now);
    return count_;
}

bool IndexSearch::may_work_in(int32 slot) {
    if (may_work_ == nullptr) {
        auto *flags =
            static_cast<bool *>(palloc0(sizeof(bool) * static_cast<size_t>(search_.slots)));
        pg::Rows rows =
            list_slots.run(pg::param(search_.node.ring_id), pg::param(search_.node.incarnation));
        for (uint64 i = 0; i < rows.count(); ++i)
            flags[rows.int4(i, 0)] = true;
        may_work_ = flags;
    }
    return may_work_[slot];
}

/// To the first row of the slot, from the remembered instant on. Where there is none, to the first
/// row of the next slots that have not been read. Returns the last of these.
int32 IndexSearch::seek(int32 slot) const {
    const WorkerIndex &index = rank_ == core::usual_rank ? usual_ : by_rank_;
    int32 last = slot;
    while (from_ == DT_NOBEGIN && last + 1 < search_.slots && !is_read_[last + 1])
        ++last;
    index.seek(search_.node.ring_id, rank_, slot, last, from_);
    return last;
}

bool IndexSearch::is_locked(TupleTableSlot *row) const {
    const pg_uuid_t &id = *DatumGetUUIDP(value_in(row, WorkColumn::saga_id));
    return search_.locked.has(id) || (sagas_ != nullptr && search_.locked.look(*sagas_, id));
}

void IndexSearch::read_slot(int32 slot) {
    pg::IndexReader &work = *(rank_ == core::usual_rank ? usual_ : by_rank_).reader;
    FoundItems &found = search_.found;
    int32 end = seek(slot) + 1; // of the slots that have nothing due, or nothing more
    while (TupleTableSlot *row = work.next()) {
        const int32 its_slot = DatumGetInt32(value_in(row, WorkColumn::slot));
        const TimestampTz due_at = DatumGetTimestampTz(value_in(row, WorkColumn::due_at));
        if (due_at > search_.now) {
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
        if (pg::is_being_changed(row) || is_locked(row)) {
            found.is_whole = false;
            continue;
        }
        room_[count_++] = found_item(row);
    }
    std::fill(is_read_ + slot, is_read_ + end, true);
}

FoundItem item_of(const pg::Rows &rows, uint64 row, int16 rank) {
    return {.item = {.saga_id = rows.uuid(row, 0),
                     .slot = rows.int4(row, 1),
                     .purpose = *core::work_purpose_of(rows.text(row, 2)),
                     .step_no = rows.int2(row, 3),
                     .direction = *core::direction_of(rows.text(row, 4)),
                     .attempt = rows.int4(row, 5)},
            .place = {.rank = rank, .due_at = rows.time(row, 7), .number = 0, .is_reserve = false},
            .is_retry = rows.boolean(row, 6)};
}

/// The same search by statements.
struct SqlSearch {
    Search &search;
    const uint32 ranks;

    size_t read(int16 rank, std::span<FoundItem> room);
    void read_next_due();

private:
    bool has(int16 rank) const { return (ranks & (1U << rank)) != 0; }
};

size_t SqlSearch::read(int16 rank, std::span<FoundItem> room) {
    if (!has(rank))
        return 0;
    ProbeMemory &probe = search.probes[static_cast<size_t>(rank)];
    const std::array params{pg::param(search.node.ring_id),
                            pg::param(search.node.incarnation),
                            pg::param_time(probe.begin(search.now)),
                            pg::param_time(search.now),
                            pg::param(static_cast<int64>(room.size())),
                            pg::param(search.rotation),
                            pg::param(rank)};
    pg::Rows rows = rank == core::usual_rank ? find_due_usual.run_with(std::span{params}.first(6))
                                             : find_due_of_rank.run_with(params);
    probe.end(search.now);
    for (uint64 row = 0; row < rows.count(); ++row)
        room[row] = item_of(rows, row, rank);
    return rows.count();
}

void SqlSearch::read_next_due() {
    const pg::Param ring = pg::param(search.node.ring_id);
    const pg::Param owner = pg::param(search.node.incarnation);
    for (int16 rank = 0; rank <= core::lowest_rank; ++rank) {
        if (!has(rank))
            continue;
        pg::Rows next = rank == core::usual_rank
                            ? find_next_due_usual.run(ring, owner, pg::param_time(search.now))
                            : find_next_due_of_rank.run(ring, owner, pg::param_time(search.now),
                                                        pg::param(rank));
        search.found.next_due =
            std::min(search.found.next_due, next.optional_time(0, 0).value_or(DT_NOEND));
    }
}

void find_by_sql(Search &search, std::span<FoundItem> room, size_t limit) {
    SqlSearch by_sql{.search = search, .ranks = ranks_for_workers(search.node.ring_id)};
    search.found.list = collect_items(by_sql, room, limit);
    if (search.found.list.empty())
        by_sql.read_next_due();
}

/// Whether the indexes could be read.
bool find_by_index(Search &search, std::span<FoundItem> room, size_t limit) {
    return with_worker_indexes([&](const WorkerIndex &usual, const WorkerIndex &by_rank) {
        const auto collect = [&](pg::IndexReader *sagas) {
            IndexSearch by_index(search, usual, by_rank, sagas);
            search.found.list = collect_items(by_index, room, limit);
        };
        search.locked.begin_search();
        const bool has_looked = search.locked.is_expected() &&
                                pg::try_index(saga_table, SagaIndex::primary_key,
                                              [&](pg::IndexReader &sagas) { collect(&sagas); });
        if (!has_looked)
            collect(nullptr);
        search.locked.end_search(has_looked);
    });
}

} // namespace

uint32 ranks_for_workers(int32 ring_id) {
    uint32 ranks = 1U << core::usual_rank;
    pg::Rows rows = list_ranks.run(pg::param(ring_id));
    for (uint64 i = 0; i < rows.count(); ++i)
        ranks |= 1U << rows.int2(i, 0);
    return ranks;
}

FoundItems ItemSearch::find(TimestampTz now, MemoryContext memory) {
    if (slots_ == 0)
        slots_ = ring_of_id(node_.ring_id).slots;
    rotation_ = (rotation_ + rotation_step) % slots_;
    const auto limit = static_cast<size_t>(pg::settings.batch_size);
    const size_t size = room_of_list(limit);
    const std::span room{
        static_cast<FoundItem *>(MemoryContextAlloc(memory, sizeof(FoundItem) * size)), size};
    Search search{.node = node_,
                  .slots = slots_,
                  .rotation = rotation_,
                  .now = now,
                  .probes = probes_,
                  .locked = locked_};
    if (work_table.obstacle() != nullptr || !find_by_index(search, room, limit))
        find_by_sql(search, room, limit);
    search.found.limit = static_cast<int32>(limit);
    search.found.is_whole = search.found.is_whole && search.found.list.size() < limit;
    return search.found;
}

void ItemSearch::settle(TimestampTz now, bool is_drained) {
    for (ProbeMemory &probe : probes_)
        probe.settle(now, is_drained);
}

} // namespace stacksaga
