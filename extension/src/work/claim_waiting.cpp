// What a queue holds for its waiters: due steps that its limits let through, and the instant at
// which there may be more.
#include "core/queue/claim_order.hpp"

#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "src/definition/definition_pauses.hpp"
#include "src/queue/queue_limits.hpp"
#include "src/work/claim_rows.hpp"

namespace stacksaga {

namespace {

/// Maximum number of searches among groups in one look, and when the next look goes on.
constexpr int searches_max = 16;
constexpr int64 search_on_us = 100 * 1000;

/// Maximum number of entries of leases that have not run out which one look reads.
constexpr size_t leases_ahead_max = 64;

constinit pg::Statement has_held_back{
    "SELECT EXISTS (SELECT FROM stacksaga.work"
    "                WHERE paused_saga = $1 AND ring_id = $2 AND queue = $3)",
    pg::Reads::this_node};

/// Whether a claim will bring back steps of the queue, since a pause of their definition is over.
bool has_to_bring_back(const ClaimSearch &search) {
    for (const DefinitionPause &pause : definition_pauses())
        if (pause.is_over(search.now) &&
            has_held_back
                .run(pg::param(pause.saga), pg::param(search.ring_id), pg::param(search.queue))
                .boolean(0))
            return true;
    return false;
}

/// One look at a queue.
struct Look {
    const ClaimSearch &search;
    size_t enough;
    Claimable found{.due = 0,
                    .next = DT_NOEND,
                    .is_being_changed = false,
                    .has_leases_ahead = false,
                    .whole_at = search.now};

    /// Whether to go on to the next row of a range that is in the order of due_at.
    bool see(TupleTableSlot *row);
    void see_usual(SessionProbe &probe);
    void see_leases(SessionProbe &probe);
    void see_ranks(uint32 due_ranks);
    void see_by_statement();
    void count_in_groups();
};

bool Look::see(TupleTableSlot *row) {
    if (pg::is_being_changed(row)) {
        found.is_being_changed = true;
        return true;
    }
    const TimestampTz due_at = due_at_of(row);
    if (due_at > search.now) {
        found.next = std::min(found.next, due_at);
        return false;
    }
    return ++found.due < enough;
}

void Look::see_usual(SessionProbe &probe) {
    each_due(search, WorkIndex::for_services, probe, DT_NOEND, 0,
             [&](TupleTableSlot *row) { return see(row); });
    found.whole_at = std::min(found.whole_at, probe.whole_at());
}

/// Leases that ran out, and the first one that will. Where that is behind too much that dead rows
/// have left, the next look goes on.
void Look::see_leases(SessionProbe &probe) {
    each_due(search, WorkIndex::leased, probe, search.now, 0,
             [&](TupleTableSlot *row) { return see(row); });
    found.whole_at = std::min(found.whole_at, probe.whole_at());
    if (found.due >= enough)
        return;
    pg::with_index(work_table, WorkIndex::leased, [&](pg::IndexReader &reader) {
        reader.seek(
            std::array{ring_key(search.ring_id), queue_key(search.queue), due_key(search.now + 1)});
        size_t left = leases_ahead_max;
        while (TupleTableSlot *row = reader.next_within(left))
            if (!see(row))
                return;
        found.has_leases_ahead = left == 0;
    });
}

/// What is due of some ranks, and of each rank the first step that is not.
void Look::see_ranks(uint32 due_ranks) {
    pg::with_index(work_table, WorkIndex::by_rank, [&](pg::IndexReader &reader) {
        const int16 last = search.only_compensations ? core::compensation_rank : core::lowest_rank;
        for (int16 rank = 0; rank <= last; ++rank) {
            const bool has_due = (due_ranks & (1U << rank)) != 0 && found.due < enough;
            reader.seek(std::array{ring_key(search.ring_id), queue_key(search.queue),
                                   rank_key(rank), due_key(has_due ? DT_NOBEGIN : search.now)});
            TupleTableSlot *row;
            while ((row = reader.next()) != nullptr && see(row))
                ;
        }
    });
}

/// Each rank's first ones, and the first that is not due behind them.
void Look::see_by_statement() {
    const auto most = static_cast<int64>(enough) + 1;
    for (const bool are_leased : {true, false})
        each_row(rows_by_statement(QueueRows{.ring_id = search.ring_id,
                                             .queue = search.queue,
                                             .are_leased = are_leased,
                                             .until = DT_NOEND,
                                             .usual = most,
                                             .per_rank = most}),
                 [&](TupleTableSlot *row) {
                     if (are_leased || !search.only_compensations ||
                         DatumGetInt16(value_in(row, WorkColumn::rank)) == core::compensation_rank)
                         see(row);
                     return true;
                 });
}

/// Steps of full groups do not count. A search visits some of the groups, and the next one those
/// behind them.
void Look::count_in_groups() {
    Candidates candidates = find_candidates(search);
    for (int i = 1; i < searches_max && candidates.list.empty() && candidates.is_cut; ++i)
        candidates = find_candidates(search);
    found.due = candidates.list.size();
    if (found.due == 0 && candidates.is_cut)
        found.next = std::min(found.next, pg::time_plus(search.now, search_on_us));
}

Claimable look(const ClaimSearch &search, const QueueLimits &limits, size_t enough) {
    QueueMemory &memory = memory_of(search.ring_id, search.queue);
    const QueueRoom room = room_of(search.ring_id, search.queue, limits, search.wanted, search.now);
    // No more than the limits let through.
    enough = std::clamp<size_t>(static_cast<size_t>(std::max(0, room.steps)), 1, enough);
    Look look{.search = search, .enough = enough};
    if (work_table.obstacle() != nullptr) {
        look.see_by_statement();
    } else {
        // A lease that ran out is settled by a claim, which makes room.
        look.see_leases(memory.leases);
        if (room.steps > 0 && !search.only_compensations)
            look.see_usual(memory.usual);
        if (room.steps > 0) {
            look.see_ranks(find_due_ranks(search, memory));
            look.found.whole_at = std::min(look.found.whole_at, memory.ranks.whole_at());
        }
    }
    if (search.only_compensations)
        look.found.next = std::min(look.found.next, limits.paused_until);
    else if (room.steps > 0 && look.found.due == 0 && has_to_bring_back(search))
        look.found.due = 1;
    look.found.next = std::min(look.found.next, next_end_of_pause(search.now));
    if (room.steps <= 0)
        look.found.next = std::min(look.found.next, room.more_at);
    else if (limits.max_running_per_group && look.found.due > 0)
        look.count_in_groups();
    return look.found;
}

} // namespace

Claimable count_claimable(int32 ring_id, std::string_view queue, TimestampTz now, size_t enough) {
    Claimable found{};
    const auto body = [&] {
        const QueueLimits limits = read_limits(ring_id, queue);
        const ClaimSearch search{.ring_id = ring_id,
                                 .queue = queue,
                                 .now = now,
                                 .only_compensations = limits.is_paused(now),
                                 .max_running_per_group = limits.max_running_per_group,
                                 .wanted = static_cast<int32>(std::min<size_t>(enough, 1000))};
        found = look(search, limits, enough);
    };
    pg::with_pinned_path([&] { pg::as_owner([&] { pg::with_spi(body); }); });
    return found;
}

} // namespace stacksaga
