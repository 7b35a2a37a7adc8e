// Ranks and groups in the search for claimable steps: rank by rank, and within a rank one step of
// each group after the other (core/queue/claim_order.hpp).
//
// Where few steps of a rank are due they are all read, and ordered in memory. Otherwise the groups
// are visited one after the other, from the one on that had its turn last: a probe for each,
// however many steps a group has. Groups of which nothing can be claimed cost a probe too, so a
// search visits a limited number, and the next one continues there.
#pragma once
#include "src/work/claim_memory.hpp"
#include "src/work/claim_rows.hpp"

namespace stacksaga {

/// The ranks of which something is due that is not of the usual rank or has a group: one bit each.
uint32 find_due_ranks(const ClaimSearch &search, QueueMemory &memory);

/// Candidates of all ranks.
Candidates find_by_turns(const ClaimSearch &search, QueueMemory &memory, uint32 due_ranks);

/// The same order for due steps that have been read already.
Candidates order_by_turns(const ClaimSearch &search, QueueMemory &memory,
                          std::span<const FoundItem> due);

} // namespace stacksaga
