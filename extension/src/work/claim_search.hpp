// The search for claimable steps: due steps of a queue in the order in which to try them, read
// straight from indexes, from where this session found the first one the last time.
//
// Most queues hold steps of the usual rank without a group only: one range of one index, in the
// order of due_at. Ranks and groups, where there are any, are claim_turns.hpp's.
//
// Claimers that meet at the head of a queue go on behind the step that each claimed last. Every
// eighth time, and after a search that claimed nothing, they step over some entries of the index
// from the head on, at random, so that each one finds steps that no other has just locked; where
// the queue is shorter than that, they choose from all of it. A claimer that meets nobody takes the
// oldest steps.
#pragma once
#include "core/saga/saga_state.hpp"

#include "pg/pg.hpp"
#include "src/ring/node.hpp"

namespace stacksaga {

/// A work row that looked claimable; only a hint until it is read again under its saga's lock.
struct Candidate {
    pg_uuid_t saga_id;
    int16 step_no;
    core::Direction direction;
    int16 rank;
    std::string_view group;
    TimestampTz due_at;
};
static_assert(std::is_trivially_destructible_v<Candidate>);

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
    int32 skipped = 0; ///< so many candidates from the head on were tried before
    int32 wanted = 0;
    bool is_from_head = false; ///< and not from a place inside, where nothing free was found
};

struct Candidates {
    std::span<const Candidate> list; ///< in the order in which to try them
    bool is_cut;                     ///< there may be more behind them
    bool is_inside = false;          ///< older ones were stepped over
    /// Of the ranks below that of the first one, the longest-waiting first; when their turn may
    /// come.
    std::span<const Candidate> lower{};
};

/// Takes candidates in the order in which to try them, with the lower ranks' turns among them.
class CandidateOrder {
public:
    CandidateOrder(const ClaimSearch &search, const Candidates &candidates);

    /// nullptr: there are no more.
    const Candidate *next();
    /// The one that next() returned was claimed.
    void note_claimed();

private:
    const Candidate *next_lower();
    bool was_tried(const Candidate &candidate) const;

    const ClaimSearch &search_;
    const Candidates &candidates_;
    size_t at_ = 0;       ///< in the list
    size_t lower_at_ = 0; ///< in those of the lower ranks
    bool *lower_tried_;   ///< which of them were returned
    const Candidate *last_ = nullptr;
    bool was_turn_ = false; ///< of the lower ranks
};
static_assert(std::is_trivially_destructible_v<CandidateOrder>);

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
/// Steps whose lease ran out, at most so many.
std::span<const Candidate> find_expired(const ClaimSearch &search, size_t limit);

/// How many of the candidates another claimer had locked, which decides how long the next list is.
void note_conflicts(const ClaimSearch &search, int32 conflicts);

} // namespace stacksaga
