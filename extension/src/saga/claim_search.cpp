#include "src/saga/claim_search.hpp"

#include "pg/function.hpp"
#include "pg/lookup.hpp"
#include "pg/query.hpp"
#include "pg/random.hpp"
#include "pg/scope.hpp"
#include "src/common/probe.hpp"
#include "src/ring/ranges.hpp"
#include "src/ring/ring.hpp"
#include "src/saga/tables.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement list_held_slots{SLOTS_HELD("$1", "$2", "$3")};

// Where the table is not accessed directly: somebody has partitioned it, say. Its first columns, as
// far as a search looks at them.
constinit pg::Statement list_steps{
    "SELECT saga_id, step_no, direction, token, ring_id, slot, due_at, attempt"
    "  FROM stacksaga.work"
    " WHERE ring_id = $1 AND queue = $2 AND due_at >= $3 AND queue IS NOT NULL AND NOT verifying"
    " ORDER BY due_at LIMIT $4"};
// More than a search wants at most.
constexpr int64 listed_max = 8192;

// Stepping over a dead entry of the index takes 0.2 us: so long a probe has met a thousand.
constexpr int64 cheap_probe_us = 300;
// Reading so many candidates costs as much as some claims do.
constexpr int32 spread_max = 1024;

/// What this session remembers of a queue that it claims from.
struct QueueMemory {
    uint64 key = 0;
    ProbeMemory probe{cheap_probe_us};
    int32 spread = 0; ///< so many candidates more than wanted are chosen from
};

/// A queue that falls on the place of another one takes it.
QueueMemory &memory_of(int32 ring_id, std::string_view queue) {
    static constinit std::array<QueueMemory, 16> places{};
    const uint64 key = core::murmur3_x64_128(queue, static_cast<uint32>(ring_id)).h1;
    QueueMemory &place = places[key % places.size()];
    if (place.key != key)
        place = QueueMemory{.key = key};
    return place;
}

/// The slots from which a registered node gets retries, one flag for each slot of the ring.
bool *held_slots(const ClaimSearch &search) {
    auto *held = static_cast<bool *>(
        palloc0(sizeof(bool) * static_cast<size_t>(ring_of_id(search.ring_id).slots)));
    if (!search.owns_retries)
        return held;
    pg::Rows rows = list_held_slots.run(
        pg::param(search.ring_id), pg::param(search.node->incarnation), pg::param_time(search.now));
    for (uint64 i = 0; i < rows.count(); ++i)
        held[rows.int4(i, 0)] = true;
    return held;
}

Candidate candidate_of(TupleTableSlot *row) {
    return {.saga_id = *DatumGetUUIDP(value_in(row, WorkColumn::saga_id)),
            .step_no = DatumGetInt16(value_in(row, WorkColumn::step_no)),
            .direction =
                *core::direction_of(pg::view_of_text(value_in(row, WorkColumn::direction)))};
}

/// Also from a procedure, which runs as its caller, in the caller's search_path.
template <class F>
void each_step_by_sql(int32 ring_id, std::string_view queue, TimestampTz from, F &&visit) {
    const auto list = [&] {
        const pg::Rows rows = list_steps.run(pg::param(ring_id), pg::param(queue),
                                             pg::param_time(from), pg::param(listed_max));
        SPITupleTable *found = SPI_tuptable;
        TupleTableSlot *slot = MakeSingleTupleTableSlot(found->tupdesc, &TTSOpsHeapTuple);
        for (uint64 i = 0; i < rows.count(); ++i)
            if (!visit(ExecStoreHeapTuple(found->vals[i], slot, false)))
                break;
        ExecDropSingleTupleTableSlot(slot);
    };
    pg::with_pinned_path([&] { pg::as_owner([&] { pg::with_spi(list); }); });
}

/// Calls `visit` with the rows of what services may claim, from an instant on, in the order of
/// due_at.
template <class F>
void each_step(int32 ring_id, std::string_view queue, TimestampTz from, F &&visit) {
    if (work_table.obstacle() != nullptr) {
        each_step_by_sql(ring_id, queue, from, visit);
        return;
    }
    const std::array<pg::KeyColumn, 3> key{
        pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(ring_id)},
        pg::KeyColumn{F_TEXTEQ, C_COLLATION_OID, PointerGetDatum(pg::make_text(queue))},
        pg::KeyColumn{F_TIMESTAMPTZ_GE, InvalidOid, TimestampTzGetDatum(from),
                      BTGreaterEqualStrategyNumber}};
    pg::each_row("work", "work_for_services", key, visit);
}

} // namespace

Claimable count_claimable(int32 ring_id, std::string_view queue, TimestampTz now, size_t enough) {
    QueueMemory &memory = memory_of(ring_id, queue);
    Claimable found{.due = 0, .next = DT_NOEND, .is_being_changed = false};
    TimestampTz first = now;
    each_step(ring_id, queue, memory.probe.begin(now), [&](TupleTableSlot *row) {
        const TimestampTz due_at = DatumGetTimestampTz(value_in(row, WorkColumn::due_at));
        first = std::min(first, due_at);
        if (pg::is_being_changed(row)) {
            found.is_being_changed = true;
            return true;
        }
        if (due_at > now) {
            found.next = due_at;
            return false;
        }
        return ++found.due < enough;
    });
    memory.probe.end(now);
    memory.probe.settle_at(now, first);
    return found;
}

Candidates find_candidates(const ClaimSearch &search) {
    QueueMemory &memory = memory_of(search.ring_id, search.queue);
    const bool *held = search.node ? held_slots(search) : nullptr;
    const auto wanted = static_cast<size_t>(search.wanted);
    const size_t limit = wanted + static_cast<size_t>(memory.spread);
    auto *list = static_cast<Candidate *>(palloc(sizeof(Candidate) * limit));
    size_t count = 0;
    int32 to_skip = search.skipped;
    TimestampTz first_left = search.now;
    each_step(search.ring_id, search.queue, memory.probe.begin(search.now),
              [&](TupleTableSlot *row) {
                  const TimestampTz due_at = DatumGetTimestampTz(value_in(row, WorkColumn::due_at));
                  if (due_at > search.now)
                      return false;
                  first_left = std::min(first_left, due_at);
                  if (pg::is_being_changed(row) || pg::is_newer_than_snapshot(row))
                      return true;
                  if (held != nullptr && DatumGetInt32(value_in(row, WorkColumn::attempt)) > 0 &&
                      !held[DatumGetInt32(value_in(row, WorkColumn::slot))])
                      return true;
                  if (to_skip-- > 0)
                      return true;
                  list[count++] = candidate_of(row);
                  return count < limit;
              });
    memory.probe.end(search.now);
    memory.probe.settle_at(search.now, first_left);
    if (count > wanted)
        std::rotate(list,
                    list + static_cast<size_t>(pg::random_fraction() *
                                               static_cast<double>(count - wanted + 1)),
                    list + count);
    return {.list = {list, count}, .is_cut = count == limit};
}

void note_conflicts(const ClaimSearch &search, int32 conflicts) {
    int32 &spread = memory_of(search.ring_id, search.queue).spread;
    if (conflicts > 0)
        spread = std::min(spread_max, spread + conflicts);
    else
        spread -= (spread + 7) / 8;
}

} // namespace stacksaga
