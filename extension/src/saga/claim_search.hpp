// The search for claimable steps: due steps of a queue in the order of due_at, read straight from
// the index, from where this session found the first one the last time.
//
// Claimers that meet at the head of a queue choose from a longer list, at random, so that each one
// finds steps that no other has just locked. A claimer that meets nobody takes the oldest steps.
#pragma once
#include "pg/pg.hpp"
#include "src/ring/node.hpp"

namespace stacksaga {

/// A work row that looked claimable; only a hint until it is read again under its saga's lock.
struct Candidate {
    pg_uuid_t saga_id;
    int16 step_no;
    core::Direction direction;
};
static_assert(std::is_trivially_destructible_v<Candidate>);

struct ClaimSearch {
    int32 ring_id;
    std::string_view queue;
    TimestampTz now;
    /// A registered node: for a worker retries only from the slots that it holds, for a standard
    /// node none.
    std::optional<NodeIdentity> node;
    bool owns_retries;
    int32 skipped; ///< so many candidates from the head on were tried before
    int32 wanted;
};

struct Candidates {
    std::span<const Candidate> list; ///< in the order in which to try them
    bool is_cut;                     ///< there may be more behind them
};

/// What a queue holds for its waiters, leases that run out included.
struct Claimable {
    size_t due;       ///< steps that are due and that nobody is changing now
    TimestampTz next; ///< when the next one falls due; DT_NOEND: there is none, or enough are due
    bool is_being_changed; ///< there are others, which may be as they were when a change is undone
};

/// Counts what is due, up to `enough`.
Claimable count_claimable(int32 ring_id, std::string_view queue, TimestampTz now, size_t enough);

/// As many candidates as are wanted, and more where other claimers were met. Inside with_spi.
Candidates find_candidates(const ClaimSearch &search);

/// How many of the candidates another claimer had locked, which decides how long the next list is.
void note_conflicts(const ClaimSearch &search, int32 conflicts);

} // namespace stacksaga
