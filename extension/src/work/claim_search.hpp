// The search for claimable steps: due steps of a queue in the order in which to try them, read
// straight from indexes, from where this session found the first one the last time.
//
// Most queues hold steps of the usual rank without a group only: one range of one index, in the
// order of due_at. Ranks and groups, where there are any, are in claim_turns.cpp.
//
// Claimers that meet at the head of a queue go on behind the step that each claimed last. Every
// eighth time, and after a search that claimed nothing, they step over some entries of the index
// from the head on, at random, so that each one finds steps that no other has just locked; where
// the queue is shorter than that, they choose from all of it. A claimer that meets nobody takes the
// oldest steps.
#pragma once
#include "src/ring/node.hpp"
#include "src/work/due_item.hpp"

namespace stacksaga {

struct ClaimSearch {
    int32 ring_id;
    std::string_view queue;
    TimestampTz now;
    /// A registered node: for a worker retries only from the slots that it holds, for a standard
    /// node none.
    std::optional<NodeIdentity> node{};
    bool owns_retries = false;
    bool only_compensations = false;
    std::optional<int32> max_running_per_group{};
    int32 skipped = 0; ///< the number of candidates that were tried before, from the head on
    int32 wanted = 0;
    bool is_from_head = false; ///< and not from a place inside, where nothing free was found
};

struct Candidates {
    /// In the order in which to try them, and behind them a reserve of lower ranks, if their turn
    /// may come.
    std::span<FoundItem> list;
    bool is_cut;            ///< there may be more behind them
    bool is_inside = false; ///< older ones were stepped over

    int32 found() const; ///< without the reserve
};

/// Takes the next candidate out of the list, in a turn of the lower ranks one of those; nullptr:
/// there are no more.
const FoundItem *take_next(const ClaimSearch &search, std::span<FoundItem> &waiting);
/// The one that take_next() returned last was claimed.
void note_claimed(const ClaimSearch &search, const FoundItem &candidate);

/// What a queue holds for its waiters, leases that run out included.
struct Claimable {
    size_t due;       ///< steps that are due and that nobody is changing now
    TimestampTz next; ///< when the next one falls due; DT_NOEND: there is none, or enough are due
    bool is_being_changed; ///< there are others, which may be as they were when a change is undone
    bool has_leases_ahead; ///< there may be some, which may run out at any time
    TimestampTz whole_at;  ///< of what long transactions committed later, some may be missing
};

/// Counts what is due and what the limits of the queue let through, up to `enough`.
Claimable count_claimable(int32 ring_id, std::string_view queue, TimestampTz now, size_t enough);

/// As many candidates as are wanted, and more where other claimers were met. Inside with_spi.
Candidates find_candidates(const ClaimSearch &search);

/// Whether no session has looked for leases that ran out for some time.
bool is_time_to_settle(const ClaimSearch &search);
/// Steps whose lease ran out, at most the given number.
std::span<FoundItem> find_expired(const ClaimSearch &search, size_t limit);

/// How many of the candidates another claimer had locked, which decides how long the next list is.
void note_conflicts(const ClaimSearch &search, int32 conflicts);

} // namespace stacksaga
