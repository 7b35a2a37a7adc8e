// Ranks and groups in the search for claimable steps: rank by rank, and within a rank one step of
// each group after the other (core/queue/claim_order.hpp).
//
// Where few steps of a rank are due they are all read, and ordered in memory. Otherwise the groups
// are visited one after the other, from the one on that had its turn last: a probe for each,
// however many steps a group has. Groups of which nothing can be claimed cost a probe too, so a
// search visits a limited number, and the next one continues there.
#include "core/common/list.hpp"
#include "core/queue/claim_order.hpp"
#include "core/work/item_order.hpp"

#include "pg/random.hpp"
#include "src/queue/queue_limits.hpp"
#include "src/work/claim_rows.hpp"

namespace stacksaga {

namespace {

using Steps = core::List<FoundItem>;

/// So many due steps of a rank are read to be ordered in memory.
constexpr size_t few_max = 64;
/// So many groups a search visits at most.
constexpr int32 visits_max = 256;
/// So many steps of a group that it may not take a search steps over.
constexpr int32 passed_max = 64;
/// The most groups among which a session that has not claimed from groups yet chooses its first.
constexpr int32 drawn_max = 32;

/// Others may have locked some of the steps of lower ranks that wait longest.
constexpr size_t reserve_spare = 3;

core::Memory current_memory() {
    return {.allocate =
                [](void *context, size_t bytes) {
                    return MemoryContextAlloc(static_cast<MemoryContext>(context), bytes);
                },
            .owner = CurrentMemoryContext};
}

pg::KeyColumn group_key(std::string_view group, StrategyNumber strategy) {
    const RegProcedure compare = strategy == BTGreaterStrategyNumber        ? F_TEXT_GT
                                 : strategy == BTGreaterEqualStrategyNumber ? F_TEXT_GE
                                                                            : F_TEXTEQ;
    return {compare, C_COLLATION_OID, PointerGetDatum(pg::make_text(group)), strategy};
}

/// How many more steps of each group may run, but for those that were taken. What runs is counted
/// when a group is first asked for.
class GroupRooms {
public:
    explicit GroupRooms(const ClaimSearch &search) : search_(search) {}

    int32 of(std::string_view group) { return is_bounded(group) ? find(group).steps : INT32_MAX; }

    /// False: there is none left.
    bool take(std::string_view group) { return !is_bounded(group) || find(group).steps-- > 0; }

private:
    struct Room {
        std::string_view group;
        int32 steps;
    };

    bool is_bounded(std::string_view group) const {
        return search_.max_running_per_group && !group.empty();
    }
    Room &find(std::string_view group) {
        for (Room &known : rooms_)
            if (known.group == group)
                return known;
        const int32 limit = *search_.max_running_per_group;
        const int32 running = count_leased(search_.ring_id, search_.queue, group, limit);
        rooms_.push(memory_, {.group = group, .steps = limit - running});
        return rooms_.back();
    }

    const ClaimSearch &search_;
    core::Memory memory_ = current_memory();
    core::List<Room> rooms_;
};

/// The source of a list of candidates, for collect_items(). What it finds lives in the current
/// memory context.
class TurnSearch {
public:
    /// `listed`: what is due, where it has been read already; then `due_ranks` does not matter.
    TurnSearch(const ClaimSearch &search, QueueMemory &memory, uint32 due_ranks,
               std::optional<std::span<const FoundItem>> listed)
        : search_(search), queue_(memory), due_ranks_(due_ranks), listed_(listed), filter_(search),
          rooms_(search) {}

    size_t read(int16 rank, std::span<FoundItem> room);
    size_t read_oldest(int16 rank, std::span<FoundItem> room);
    /// Whether groups were left that no search has visited.
    bool is_cut() const { return is_cut_; }

private:
    bool read_few(int16 rank, bool or_none, Steps &steps);
    void add_usual(int16 rank, size_t limit, Steps &steps);
    size_t add_in_order(int16 rank, const Steps &steps, std::span<FoundItem> room);
    Steps visit_groups(int16 rank, const Steps &oldest, size_t limit);
    void begin_anywhere(pg::IndexReader &reader, int16 rank, const Steps &oldest);
    TupleTableSlot *seek_next(pg::IndexReader &reader, int16 rank, std::string_view group) const;
    TupleTableSlot *seek_group(pg::IndexReader &reader, int16 rank, std::string_view group,
                               StrategyNumber strategy) const;
    size_t take(pg::IndexReader &reader, TupleTableSlot *row, std::string_view group, size_t limit,
                Steps &steps) const;
    void read_further(pg::IndexReader &reader, int16 rank,
                      const core::List<std::string_view> &groups, size_t limit, Steps &steps);

    const ClaimSearch &search_;
    QueueMemory &queue_;
    uint32 due_ranks_;
    std::optional<std::span<const FoundItem>> listed_;
    RowFilter filter_;
    GroupRooms rooms_;
    core::Memory memory_ = current_memory();
    bool is_cut_ = false;
};

/// The oldest due steps of the rank that have turns, but for those of groups that are full. False:
/// there are more, and where `or_none` says so nothing was read.
bool TurnSearch::read_few(int16 rank, bool or_none, Steps &steps) {
    if (listed_)
        for (const FoundItem &i : *listed_)
            if (i.place.rank == rank)
                steps.push(memory_, i);
    if (listed_ || (due_ranks_ & (1U << rank)) == 0)
        return true;
    const std::array key{ring_key(search_.ring_id), queue_key(search_.queue), rank_key(rank),
                         due_until_key(search_.now, 4)};
    size_t read = 0;
    pg::with_index(work_table, WorkIndex::by_rank, [&](pg::IndexReader &reader) {
        reader.seek(key);
        if (or_none && reader.skip(few_max + 1)) {
            read = few_max + 1;
            return;
        }
        reader.seek(key);
        TupleTableSlot *row;
        while (read <= few_max && (row = reader.next()) != nullptr) {
            ++read;
            if (filter_.passes(row))
                steps.push(memory_, candidate_of(row));
        }
    });
    return read <= few_max;
}

/// Of the usual rank those without a group, too.
void TurnSearch::add_usual(int16 rank, size_t limit, Steps &steps) {
    if (!listed_ && rank == core::usual_rank)
        for (const FoundItem &i : read_usual(search_, 0, limit))
            steps.push(memory_, i);
}

TupleTableSlot *TurnSearch::seek_group(pg::IndexReader &reader, int16 rank, std::string_view group,
                                       StrategyNumber strategy) const {
    reader.seek(std::array{ring_key(search_.ring_id), queue_key(search_.queue), rank_key(rank),
                           group_key(group, strategy)});
    return reader.next();
}

std::string_view group_of(TupleTableSlot *row) {
    return pg::view_of_text(value_in(row, WorkColumn::group_key));
}

/// Takes due steps of the group, of which `row` is the first one. Returns how many.
size_t TurnSearch::take(pg::IndexReader &reader, TupleTableSlot *row, std::string_view group,
                        size_t limit, Steps &steps) const {
    size_t taken = 0;
    int32 passed = 0;
    for (; row != nullptr && taken < limit && passed < passed_max; row = reader.next()) {
        if (group_of(row) != group || due_at_of(row) > search_.now)
            break;
        if (!filter_.passes(row)) {
            ++passed;
            continue;
        }
        FoundItem found = candidate_of(row);
        found.group = group;
        steps.push(memory_, found);
        ++taken;
    }
    return taken;
}

/// The first step of the group behind this one; behind the last group that of the first.
TupleTableSlot *TurnSearch::seek_next(pg::IndexReader &reader, int16 rank,
                                      std::string_view group) const {
    TupleTableSlot *row = seek_group(reader, rank, group, BTGreaterStrategyNumber);
    return row != nullptr ? row : seek_group(reader, rank, {}, BTGreaterEqualStrategyNumber);
}

/// Sets the cursor where it has none: to any of the groups of which a step can be claimed, from
/// that of one of the oldest steps on. Sessions that claim once and leave serve all groups alike.
void TurnSearch::begin_anywhere(pg::IndexReader &reader, int16 rank, const Steps &oldest) {
    if (oldest.empty())
        return;
    const auto any =
        static_cast<size_t>(pg::random_fraction() * static_cast<double>(oldest.size()));
    GroupCursor &cursor = queue_.cursors[static_cast<size_t>(rank)];
    const std::string_view start = oldest[any].group;
    cursor.set(start);
    core::GroupDraw draw;
    std::string_view at = start;
    for (int32 i = 0; i < drawn_max; ++i) {
        TupleTableSlot *row = seek_next(reader, rank, at);
        if (row == nullptr)
            return;
        const bool is_due = due_at_of(row) <= search_.now;
        const std::string_view group = group_of(row);
        at = {pnstrdup(group.data(), group.size()), group.size()};
        if (is_due && rooms_.of(at) > 0 && draw.takes(pg::random_fraction()))
            cursor.set(at);
        if (at == start)
            return;
    }
}

/// One step of each group, from the one after the cursor on, and more of each when there are fewer
/// groups than steps are wanted.
Steps TurnSearch::visit_groups(int16 rank, const Steps &oldest, size_t limit) {
    Steps steps;
    pg::with_index(work_table, WorkIndex::by_group, [&](pg::IndexReader &reader) {
        GroupCursor &cursor = queue_.cursors[static_cast<size_t>(rank)];
        if (!cursor.is_set)
            begin_anywhere(reader, rank, oldest);
        const std::string_view start{pnstrdup(cursor.group().data(), cursor.group().size()),
                                     cursor.group().size()};
        core::List<std::string_view> groups;
        std::string_view at = start;
        bool is_round = false;  // all groups have been visited
        bool is_behind = false; // the end of the groups has been passed
        for (int32 visits = 0; visits < visits_max && steps.size() < limit; ++visits) {
            TupleTableSlot *row = seek_group(reader, rank, at, BTGreaterStrategyNumber);
            if (row == nullptr && !is_behind) {
                is_behind = true;
                row = seek_group(reader, rank, {}, BTGreaterEqualStrategyNumber);
            }
            is_round = row == nullptr || (is_behind && group_of(row) > start);
            if (is_round)
                break;
            const std::string_view group = group_of(row);
            at = {pnstrdup(group.data(), group.size()), group.size()};
            if (rooms_.of(at) > 0 && take(reader, row, at, 1, steps) > 0)
                groups.push(memory_, at);
            is_round = is_behind && at == start;
            if (is_round)
                break;
        }
        if (is_round && steps.size() < limit)
            read_further(reader, rank, groups, limit, steps);
        if (steps.empty())
            cursor.set(at);
        is_cut_ = is_cut_ || !is_round;
    });
    return steps;
}

/// More steps of each of these groups, twice as many as each should need, and more where others
/// have too few.
void TurnSearch::read_further(pg::IndexReader &reader, int16 rank,
                              const core::List<std::string_view> &groups, size_t limit,
                              Steps &steps) {
    if (groups.empty())
        return;
    for (size_t depth = 2 * (limit / groups.size() + 1);; depth *= 4) {
        steps.clear();
        bool has_more = false;
        for (const std::string_view group : groups) {
            const auto room = static_cast<size_t>(std::max(0, rooms_.of(group)));
            const size_t taken =
                take(reader, seek_group(reader, rank, group, BTEqualStrategyNumber), group,
                     std::min(depth, room), steps);
            has_more = has_more || (taken == depth && taken < room);
        }
        if (steps.size() >= limit || !has_more)
            return;
    }
}

/// Adds steps of one rank in their order. Of a group no more than it has room for.
size_t TurnSearch::add_in_order(int16 rank, const Steps &steps, std::span<FoundItem> room) {
    auto *order = static_cast<core::WaitingStep *>(
        palloc(sizeof(core::WaitingStep) * std::max<size_t>(1, steps.size())));
    for (size_t i = 0; i < steps.size(); ++i)
        order[i] = {.group = steps[i].group, .due_at = steps[i].place.due_at, .index = i};
    GroupCursor &cursor = queue_.cursors[static_cast<size_t>(rank)];
    const std::span<core::WaitingStep> list{order, steps.size()};
    if (!cursor.is_set && !steps.empty()) {
        core::order_by_turns(list, {});
        cursor.set(core::draw_group(list, pg::random_fraction));
        for (core::WaitingStep &step : list)
            step.round = 0;
    }
    core::order_by_turns(list, cursor.group());
    size_t count = 0;
    for (size_t i = 0; i < list.size() && count < room.size(); ++i)
        if (rooms_.take(list[i].group))
            room[count++] = steps[list[i].index];
    return count;
}

size_t TurnSearch::read(int16 rank, std::span<FoundItem> room) {
    if (search_.only_compensations && rank != core::compensation_rank)
        return 0;
    Steps steps;
    // The cursor says where to go on among groups. Where nothing of those that a search visits can
    // be claimed, what waits longest may.
    if (!read_few(rank, queue_.cursors[static_cast<size_t>(rank)].is_set, steps)) {
        if (const Steps visited = visit_groups(rank, steps, room.size()); !visited.empty())
            steps = visited;
        else if (steps.empty())
            static_cast<void>(read_few(rank, false, steps));
    }
    add_usual(rank, room.size(), steps);
    return add_in_order(rank, steps, room);
}

/// For the turns of a lower rank: those that wait longest, whatever their group.
size_t TurnSearch::read_oldest(int16 rank, std::span<FoundItem> room) {
    Steps steps;
    static_cast<void>(read_few(rank, false, steps));
    add_usual(rank, room.size(), steps);
    std::sort(steps.begin(), steps.end(), [](const FoundItem &a, const FoundItem &b) {
        return core::waits_longer(a.place, b.place);
    });
    size_t count = 0;
    for (size_t i = 0; i < steps.size() && count < room.size(); ++i)
        if (rooms_.of(steps[i].group) > 0)
            room[count++] = steps[i];
    return count;
}

} // namespace

uint32 find_due_ranks(const ClaimSearch &search, QueueMemory &memory) {
    uint32 ranks = 0;
    const TimestampTz from = memory.ranks.begin(search.now);
    TimestampTz first = search.now;
    pg::with_index(work_table, WorkIndex::by_rank, [&](pg::IndexReader &reader) {
        for (int16 rank = 0; rank <= core::lowest_rank; ++rank) {
            pg::KeyColumn rank_column = rank_key(rank);
            if (from == DT_NOBEGIN) { // the next rank of which there is a step
                rank_column.compare = F_INT2GE;
                rank_column.strategy = BTGreaterEqualStrategyNumber;
                reader.seek(
                    std::array{ring_key(search.ring_id), queue_key(search.queue), rank_column});
            } else {
                reader.seek(std::array{ring_key(search.ring_id), queue_key(search.queue),
                                       rank_column, due_key(from)});
            }
            TupleTableSlot *row = reader.next();
            if (row == nullptr && from == DT_NOBEGIN)
                break;
            if (row == nullptr)
                continue;
            rank = DatumGetInt16(value_in(row, WorkColumn::rank));
            const TimestampTz due_at = due_at_of(row);
            first = std::min(first, due_at);
            if (due_at <= search.now)
                ranks |= 1U << rank;
        }
        memory.ranks.end(search.now, first, reader.seen());
    });
    return ranks;
}

Candidates find_by_turns(const ClaimSearch &search, QueueMemory &memory, uint32 due_ranks,
                         std::optional<std::span<const FoundItem>> listed) {
    const auto skipped = static_cast<size_t>(search.skipped);
    const size_t limit = static_cast<size_t>(search.wanted) + skipped;
    const bool may_turn = memory.turn.may_come_within(search.wanted) && !search.only_compensations;
    const size_t reserve =
        may_turn ? core::reserve_of(static_cast<size_t>(search.wanted)) + reserve_spare : 0;
    const size_t size = room_of_list(limit, reserve);
    TurnSearch turns(search, memory, due_ranks, listed);
    Candidates found{.list = collect_items(
                         turns, {static_cast<FoundItem *>(palloc(sizeof(FoundItem) * size)), size},
                         limit, reserve),
                     .is_cut = turns.is_cut()};
    found.is_cut = found.is_cut || static_cast<size_t>(found.found()) == limit;
    found.list = found.list.subspan(std::min(skipped, found.list.size()));
    return found;
}

} // namespace stacksaga
