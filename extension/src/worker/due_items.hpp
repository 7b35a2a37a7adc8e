// The items of a worker's turn, as run_batch() runs them.
#pragma once
#include "core/queue/claim_order.hpp"

#include "src/handler/batch.hpp"
#include "src/saga/work_item.hpp"
#include "src/work/item_search.hpp"

namespace stacksaga {

/// A worker's memory between turns.
struct TurnState {
    ItemSearch search{{}};
    std::string_view name{}; ///< the caller's, for this turn
    BatchPace pace{};
    core::LowerRankTurn lower_ranks{};
};
/// Items of a turn, for run_batch(): each batch takes the items that the one before left.
///
/// The steps of a saga that follow each other at once run one after the other. Each is an item of
/// its own: the place in the list stays, and `ahead` counts. Where others come between them, the
/// next one waits in its place until its turn.
///
/// A list of several ranks is ordered while it is worked off (core/work/item_order.hpp): which item
/// is next depends on how many steps ran before. The slots of a batch are locked before it begins,
/// so the items that it may run go to the front first. Each try begins with the same list.
struct DueItems {
    static constexpr bool can_postpone = true;
    static constexpr bool goes_on_after_failure = true;

    struct Counts {
        int32 done;
        int32 failures;
        int32 deferred;
        int32 steps;  ///< done or failed
        uint64 bytes; ///< of their calls
        bool skipped; ///< a due item was left: the slot is not ours, or the saga is locked
    };

    void open(int32 room, bool is_guarded);
    bool has_next();
    int64 id() const {
        return static_cast<int64>(at(next).place.number) << 32 | (at(next).steps + ahead);
    }
    static int32 weight() { return 1; }
    void run();
    void keep();
    bool charge(const HandlerError &error);
    void postpone();
    void close();
    void commit();
    /// Whether nothing of the list is left to run.
    bool is_over() const;

    TurnState &state;
    std::span<FoundItem> found;
    std::span<FoundItem>
        saved;              ///< as `found` was at the last commit; where there are several ranks
    int32 steps_max;        ///< of all batches: the reserve of the list suffices for them
    uint64 *first_attempts; ///< the budgets of those that were done; room for those of a batch
    std::optional<double> fraction{};
    int32 first = 0;          ///< of this batch
    bool keeps_first = false; ///< it waits for a lock: it is the batch, whatever its rank
    Counts total{};
    // Of this try.
    int32 next = 0;
    int32 end = 0;
    int32 steps_left = 0;
    RunAhead run_ahead = RunAhead::no;
    core::LowerRankTurn lower_ranks{};
    int32 first_attempt_count = 0;
    Counts counts{};
    // The item whose turn it is: `next`, or a later step of its saga.
    DueItem item{};
    int32 ahead = 0;      ///< the steps of its saga that ran before it
    Saga *saga = nullptr; ///< as they left it; nullptr: it is written, and must be read again

    // Of the item that ran.
    ItemOutcome outcome{};
    bool is_deferred = false;

private:
    FoundItem &at(int32 place) const { return found[static_cast<size_t>(place)]; }
    std::span<FoundItem> from(int32 place, int32 to) const {
        return found.subspan(static_cast<size_t>(place), static_cast<size_t>(to - place));
    }
    bool has_ranks() const { return !saved.empty(); }
    int32 size() const { return static_cast<int32>(found.size()); }
    void plan();
    bool take_next();
    RunAhead may_run_ahead() const;
    void wait_again();
    void note(const ItemOutcome &kept);
    void note_step();
    int64 ask_budget(const DueItem &retry);
    bool is_found_deferred();
    void go_on();
};
static_assert(std::is_trivially_destructible_v<DueItems>);

/// The items that a search has found; `memory` outlives the batches.
DueItems due_items(TurnState &state, const FoundItems &found, MemoryContext memory);

} // namespace stacksaga
