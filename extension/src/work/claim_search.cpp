#include "src/work/claim_search.hpp"

#include "core/queue/claim_order.hpp"
#include "core/work/item_order.hpp"

#include "pg/random.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "src/queue/queue_limits.hpp"
#include "src/ring/ranges.hpp"
#include "src/ring/rings.hpp"
#include "src/work/claim_rows.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement list_held_slots{SLOTS_HELD("$1", "$2", "$3")};

// Of a rank, more than a search wants at most. Groups behind so many steps wait until these are
// fewer.
constexpr int64 listed_max = 8192;

// A list has this number more than it wants, since the lower ranks have their turns among them.
constexpr int32 order_spare = 16;

// A search inside a queue reads this number more than it wants, as some of them may be locked.
constexpr size_t spare = 3;

// So often one of the busy sessions looks for leases that ran out, which a worker settles as well.
constexpr int64 settle_interval_us = 100 * 1000;

/// The slots from which a registered node gets retries, one flag for each slot of the ring.
const bool *held_slots(const ClaimSearch &search) {
    auto *held = static_cast<bool *>(
        palloc0(sizeof(bool) * static_cast<size_t>(ring_of_id(search.ring_id).slots)));
    if (!search.owns_retries)
        return held;
    pg::Rows rows = list_held_slots.run(
        pg::param(search.ring_id), pg::param(search.node->incarnation), pg::param_time(search.now));
    for (uint64 i = 0; i < rows.count(); ++i)
        held[rows.int4(i)] = true;
    return held;
}

/// The due steps without a group of the usual rank from an instant on.
std::span<FoundItem> read_usual_from(const ClaimSearch &search, TimestampTz from, size_t limit) {
    CandidateList list(search, limit);
    const std::array key{ring_key(search.ring_id), queue_key(search.queue), due_key(from),
                         due_until_key(search.now)};
    pg::each_row(work_table, WorkIndex::for_services, key,
                 [&](TupleTableSlot *row) { return list.add(row); });
    return list.found();
}

/// A few steps inside the queue, where other claimers were met at its head. Older ones may be free.
std::span<FoundItem> read_inside(const ClaimSearch &search, QueueMemory &memory, size_t few) {
    const std::optional<TimestampTz> last = memory.last_claim.take(search.now);
    if (last && memory.start.is_elsewhere())
        if (const auto found = read_usual_from(search, *last, few); found.size() == few)
            return found;
    // Entries that are stepped over cost little, because their rows are not read.
    const auto stepped_over = static_cast<size_t>(memory.start.passed(pg::random_fraction()));
    return stepped_over > 0 ? read_usual(search, stepped_over, few) : std::span<FoundItem>();
}

/// Only steps of the usual rank without a group are due.
Candidates find_usual(const ClaimSearch &search, QueueMemory &memory) {
    if (!search.is_from_head) {
        const size_t few = static_cast<size_t>(search.wanted) + spare;
        const std::span<FoundItem> inside = read_inside(search, memory, few);
        if (inside.size() == few)
            return {.list = inside, .is_cut = true, .is_inside = true};
    }
    const auto wanted = static_cast<size_t>(search.wanted);
    const auto skipped = static_cast<size_t>(search.skipped);
    const size_t limit = wanted + static_cast<size_t>(memory.start.items());
    const std::span<FoundItem> read = read_usual(search, 0, skipped + limit);
    FoundItem *list = read.data() + std::min(skipped, read.size());
    const size_t count = read.size() - std::min(skipped, read.size());
    if (count > wanted)
        std::rotate(list,
                    list + static_cast<size_t>(pg::random_fraction() *
                                               static_cast<double>(count - wanted + 1)),
                    list + count);
    return {.list = {list, count}, .is_cut = count == limit};
}

/// How many steps of the usual rank without a group a list needs. A registered node may have to
/// pass over any number of retries that are not its own.
int64 usual_listed(const ClaimSearch &search) {
    if (search.node)
        return listed_max;
    return std::min(listed_max, int64{search.wanted} + search.skipped + order_spare);
}

std::span<FoundItem> list_by_statement(const ClaimSearch &search, bool leased) {
    const pg::Rows rows = rows_by_statement(QueueRows{.ring_id = search.ring_id,
                                                      .queue = search.queue,
                                                      .are_leased = leased,
                                                      .until = search.now,
                                                      .usual = usual_listed(search),
                                                      .per_rank = listed_max});
    CandidateList list(search, rows.count());
    each_row(rows, [&](TupleTableSlot *row) { return list.add(row); });
    return list.found();
}

} // namespace

RowFilter::RowFilter(const ClaimSearch &search)
    : held_(search.node ? held_slots(search) : nullptr) {}

std::span<FoundItem> read_usual(const ClaimSearch &search, size_t entries, size_t limit) {
    CandidateList list(search, limit);
    each_due(search, WorkIndex::for_services, memory_of(search.ring_id, search.queue).usual,
             search.now, entries, [&](TupleTableSlot *row) { return list.add(row); });
    return list.found();
}

Candidates find_candidates(const ClaimSearch &search) {
    QueueMemory &memory = memory_of(search.ring_id, search.queue);
    if (work_table.obstacle() != nullptr)
        return find_by_turns(search, memory, 0, list_by_statement(search, false));
    const uint32 ranks = find_due_ranks(search, memory);
    if (ranks == 0 && !search.only_compensations)
        return find_usual(search, memory);
    return find_by_turns(search, memory, ranks);
}

int32 Candidates::found() const {
    return static_cast<int32>(std::count_if(
        list.begin(), list.end(), [](const FoundItem &i) { return !i.place.is_reserve; }));
}

const FoundItem *take_next(const ClaimSearch &search, std::span<FoundItem> &waiting) {
    if (waiting.empty() || waiting.front().place.is_reserve)
        return nullptr;
    const core::LowerRankTurn turn = memory_of(search.ring_id, search.queue).turn;
    move_to_front(waiting, core::or_lower(waiting.data(), waiting, turn));
    const FoundItem *next = waiting.data();
    waiting = waiting.subspan(1);
    return next;
}

void note_claimed(const ClaimSearch &search, const FoundItem &candidate) {
    QueueMemory &memory = memory_of(search.ring_id, search.queue);
    core::note_step(memory.turn);
    memory.last_claim.note(candidate.place.due_at, search.now);
    memory.cursors[static_cast<size_t>(candidate.place.rank)].set(candidate.group);
}

bool is_time_to_settle(const ClaimSearch &search) {
    const QueueMemory &memory = memory_of(search.ring_id, search.queue);
    if (pg::steady_now() - memory.settled_at <= settle_interval_us)
        return false;
    const std::optional<FullProbe> shared = shared_probe(memory.settled_key);
    return !shared || !shared->is_recent(search.now);
}

std::span<FoundItem> find_expired(const ClaimSearch &search, size_t limit) {
    if (work_table.obstacle() != nullptr)
        return list_by_statement(search, true);
    QueueMemory &memory = memory_of(search.ring_id, search.queue);
    memory.settled_at = pg::steady_now();
    CandidateList list(search, limit);
    TimestampTz first_left = search.now;
    each_due(search, WorkIndex::leased, memory.leases, search.now, 0, [&](TupleTableSlot *row) {
        first_left = std::min(first_left, due_at_of(row));
        return list.add(row);
    });
    if (list.found().size() < limit)
        share_probe(
            memory.settled_key,
            {.at = search.now, .first_left = first_left, .interval_us = settle_interval_us});
    return list.found();
}

void note_conflicts(const ClaimSearch &search, int32 conflicts) {
    memory_of(search.ring_id, search.queue).start.note(conflicts);
}

} // namespace stacksaga
