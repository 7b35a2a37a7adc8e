// The search for a worker's due items: rows of work in its slots, read straight from the indexes,
// rank by rank, and of a rank slot by slot in an order that changes from turn to turn, so that a
// backlog in one slot does not keep the others waiting.
#pragma once
#include "core/queue/claim_order.hpp"

#include "src/common/probe.hpp"
#include "src/ring/node.hpp"
#include "src/work/due_item.hpp"
#include "src/work/locked_sagas.hpp"

namespace stacksaga {

struct FoundItems {
    std::span<FoundItem> list; ///< with its reserve
    int32 limit;               ///< of the list without it
    bool is_whole;             ///< nothing else is due
    TimestampTz next_due; ///< the first of what is not due yet, where that was read; or DT_NOEND
};

/// Of each rank.
using RankProbes = std::array<ProbeMemory, core::lowest_rank + 1>;

/// What a worker remembers from search to search.
class ItemSearch {
public:
    constexpr explicit ItemSearch(const NodeIdentity &node) : node_(node) {}

    const NodeIdentity &node() const { return node_; }

    /// At most `stacksaga.batch_size` items and a reserve, in `memory`. Inside with_spi.
    FoundItems find(TimestampTz now, MemoryContext memory);

    /// Whether all that find() saw due at `now` is done, and it saw everything.
    void settle(TimestampTz now, bool is_drained);

    /// An item could not run, since its saga was locked. The next search passes over such items.
    void note_locked() { locked_.note_skipped(); }
    bool expects_locks() const { return locked_.is_expected(); }

private:
    NodeIdentity node_;
    int32 slots_ = 0; ///< of the ring; 0: not read yet
    int32 rotation_ = 0;
    RankProbes probes_{};
    LockedSagas locked_{};
};
static_assert(std::is_trivially_destructible_v<ItemSearch>);

} // namespace stacksaga
