#include "src/work/pending_search.hpp"

#include "core/queue/claim_order.hpp"
#include "core/ring/murmur3.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/work_purpose.hpp"
#include "core/work/item_order.hpp"

#include "pg/clock.hpp"
#include "pg/random.hpp"
#include "pg/statement/query.hpp"
#include "src/common/session_probe.hpp"
#include "src/work/work_table.hpp"
#include "src/work/worker_index.hpp"

namespace stacksaga {

namespace {

// Where the table is not accessed directly: somebody has partitioned it, or Citus manages it.
#define FIND_PENDING(OF_ITS_RANK)                                                                  \
    "SELECT w.saga_id, w.slot, w.purpose::text, w.step_no, w.direction, w.due_at"                  \
    "  FROM generate_series($2, $3 - 1) AS s(slot), LATERAL ("                                     \
    "       SELECT saga_id, slot, purpose, step_no, direction, due_at FROM stacksaga.work w"       \
    "        WHERE w.ring_id = $1 AND w.slot = s.slot AND w.due_at <= $4" OF_ITS_RANK              \
    "        ORDER BY w.due_at LIMIT $5) AS w"                                                     \
    " ORDER BY w.due_at LIMIT $5"
constinit pg::Statement find_usual{FIND_PENDING(IS_OF_USUAL_RANK), pg::Reads::this_node};
constinit pg::Statement find_of_rank{FIND_PENDING(IS_OF_RANK("$6")), pg::Reads::this_node};

// To seek a slot costs as much as reading so many rows.
constexpr int32 unwanted_max = 6;

// A search of slots that have something due each takes less. One that begins at an instant seeks
// each slot, for about half of that.
constexpr int64 cheap_slot_us = 4;

// Between the start of a saga and its commit. Where sagas are done as they come, a search reads
// what was done in this time.
constexpr int64 commit_lag_us = USECS_PER_SEC;

/// From where a session searches, by rank.
using Probes = std::array<SessionProbe, core::lowest_rank + 1>;

/// Of the ring, which is the only one that is remembered. By the processor's time, since most of
/// the other passes while another session has the processor.
Probes &probes_of(const Ring &ring) {
    static constinit Probes probes{};
    static constinit int32 ring_id = 0;
    if (ring_id != ring.ring_id) {
        ring_id = ring.ring_id;
        // No queue's, since no ring has a negative number.
        const uint64 key =
            core::murmur3_x64_128("run_pending", static_cast<uint32>(~ring.ring_id)).h1;
        const ProbeMemory memory(cheap_slot_us * ring.slots, pg::processor_now, 0, commit_lag_us);
        for (size_t rank = 0; rank < probes.size(); ++rank)
            probes[rank] = SessionProbe(key + rank, memory);
    }
    return probes;
}

/// What both ways to search have to know.
struct Search {
    const Ring &ring;
    const SlotRange usual_slots;
    const LeftItems &left;
    TimestampTz now;

    SlotRange slots_of(int16 rank) const {
        return rank == core::usual_rank ? usual_slots : all_slots(ring);
    }
};

/// A search by the indexes. Of the items that it keeps, the one that is due last is in front: they
/// are a heap.
class IndexSearch {
public:
    IndexSearch(const Search &search, const WorkerIndex &usual, const WorkerIndex &by_rank)
        : search_(search), usual_(usual), by_rank_(by_rank) {}

    /// The oldest due items of the rank.
    size_t read(int16 rank, std::span<FoundItem> room);

private:
    int32 read_slots(const WorkerIndex &index, int32 last);
    bool is_wanted(TimestampTz due_at) const;
    void keep(const FoundItem &found);

    const Search &search_;
    WorkerIndex usual_;
    WorkerIndex by_rank_;
    // Of the rank that is read.
    TimestampTz first_ = DT_NOEND; ///< when the oldest of those that were seen was due
    std::span<FoundItem> room_{};
    size_t count_ = 0;
    int32 seen_ = 0;
};
static_assert(std::is_trivially_destructible_v<IndexSearch>);

bool goes_before(const FoundItem &a, const FoundItem &b) {
    return core::goes_before(a.place, b.place);
}

size_t IndexSearch::read(int16 rank, std::span<FoundItem> room) {
    const WorkerIndex &index = rank == core::usual_rank ? usual_ : by_rank_;
    SessionProbe &probe = probes_of(search_.ring)[static_cast<size_t>(rank)];
    const SlotRange slots = search_.slots_of(rank);
    const bool is_of_all = slots == all_slots(search_.ring);
    const TimestampTz from = is_of_all ? probe.begin(search_.now) : probe.begin_of_part();
    first_ = search_.now;
    room_ = room;
    count_ = 0;
    for (int32 slot = slots.first; slot < slots.end && !room.empty();) {
        const int32 last = from == DT_NOBEGIN ? slots.end - 1 : slot;
        index.seek(search_.ring.ring_id, rank, slot, last, from);
        slot = read_slots(index, last);
    }
    if (is_of_all)
        probe.end(search_.now, first_, index.reader->seen());
    std::sort_heap(room_.begin(), room_.begin() + static_cast<ptrdiff_t>(count_), goes_before);
    return count_;
}

/// Reads on until a slot has more rows that are not wanted than it costs to seek the next slot.
/// Returns the slot to go on with.
int32 IndexSearch::read_slots(const WorkerIndex &index, int32 last) {
    int32 unwanted = 0;
    while (TupleTableSlot *row = index.reader->next()) {
        CHECK_FOR_INTERRUPTS();
        const TimestampTz due_at = DatumGetTimestampTz(value_in(row, WorkColumn::due_at));
        if (!is_wanted(due_at)) {
            if (++unwanted > unwanted_max)
                return DatumGetInt32(value_in(row, WorkColumn::slot)) + 1;
            continue;
        }
        unwanted = 0;
        first_ = std::min(first_, due_at);
        if (pg::is_being_changed(row) || pg::is_newer_than_snapshot(row))
            continue;
        const FoundItem found = found_item(row);
        if (!search_.left.has(found.item))
            keep(found);
    }
    return last + 1;
}

bool IndexSearch::is_wanted(TimestampTz due_at) const {
    return due_at <= search_.now && (count_ < room_.size() || due_at < room_.front().place.due_at);
}

void IndexSearch::keep(const FoundItem &found) {
    if (count_ == room_.size()) {
        std::pop_heap(room_.begin(), room_.end(), goes_before);
        --count_;
    }
    room_[count_] = found;
    room_[count_++].place.number = ++seen_;
    std::push_heap(room_.begin(), room_.begin() + static_cast<ptrdiff_t>(count_), goes_before);
}

/// The same by statements.
struct SqlSearch {
    const Search &search;
    const uint32 ranks;

    size_t read(int16 rank, std::span<FoundItem> room) const;
};

size_t SqlSearch::read(int16 rank, std::span<FoundItem> room) const {
    if ((ranks & (1U << rank)) == 0)
        return 0;
    const SlotRange slots = search.slots_of(rank);
    const std::array params{pg::param(search.ring.ring_id),
                            pg::param(slots.first),
                            pg::param(slots.end),
                            pg::param_time(search.now),
                            pg::param(static_cast<int32>(room.size()) + search.left.count),
                            pg::param(rank)};
    pg::Rows rows = rank == core::usual_rank ? find_usual.run_with(std::span{params}.first(5))
                                             : find_of_rank.run_with(params);
    size_t count = 0;
    for (uint64 i = 0; i < rows.count() && count < room.size(); ++i) {
        const DueItem item{.saga_id = rows.uuid(i, 0),
                           .slot = rows.int4(i, 1),
                           .purpose = *core::work_purpose_of(rows.text(i, 2)),
                           .step_no = rows.int2(i, 3),
                           .direction = *core::direction_of(rows.text(i, 4))};
        if (!search.left.has(item))
            room[count++] = {.item = item,
                             .place = {.rank = rank,
                                       .due_at = rows.time(i, 5),
                                       .number = 0,
                                       .is_reserve = false},
                             .is_retry = false};
    }
    return count;
}

std::span<FoundItem> search_once(const Search &search, std::span<FoundItem> room, size_t limit) {
    std::span<FoundItem> found;
    if (work_table.obstacle() != nullptr ||
        !with_worker_indexes([&](const WorkerIndex &usual, const WorkerIndex &by_rank) {
            IndexSearch by_index(search, usual, by_rank);
            found = collect_items(by_index, room, limit);
        }))
        found = collect_items(
            SqlSearch{.search = search, .ranks = ranks_for_workers(search.ring.ring_id)}, room,
            limit);
    return found;
}

} // namespace

SlotRange some_slots(const Ring &ring) {
    constexpr int32 parts = 8; // the number of slots is a power of two, and no smaller
    const int32 count = ring.slots / parts;
    const auto part = static_cast<int32>(pg::random_fraction() * parts);
    return {part * count, (part + 1) * count};
}

std::span<FoundItem> find_pending(const Ring &ring, SlotRange usual_slots, const LeftItems &left,
                                  std::span<FoundItem> room, size_t limit) {
    const Search search{
        .ring = ring, .usual_slots = usual_slots, .left = left, .now = pg::clock_now()};
    CommandCounterIncrement(); // what this transaction has written counts as well
    std::span<FoundItem> found = search_once(search, room, limit);
    Probes &probes = probes_of(ring);
    const bool is_whole = std::all_of(probes.begin(), probes.end(),
                                      [](const SessionProbe &probe) { return probe.is_full(); });
    // Nothing is due only when nothing older is either.
    if (found.empty() && usual_slots == all_slots(ring) && !is_whole) {
        for (SessionProbe &probe : probes)
            probe.demand_full();
        found = search_once(search, room, limit);
    }
    return found;
}

} // namespace stacksaga
