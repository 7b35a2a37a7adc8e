// The check that a window moves only as many slots as balance needs, and none of a frozen agent.
#pragma once

#include "roles/proposal.hpp"

#include <span>

namespace stacksaga::sim {

/// Violation when a proposal moves a slot that a frozen agent keeps, or, under `consistent`, more
/// slots than balance needs: each member keeps its slots up to its quota. The proposal was computed
/// from `nodes` and `slots`: all slots, or those of an agent.
void check_moves(const coordinator::Proposal &proposal, coordinator::Strategy strategy,
                 std::span<const coordinator::Node> nodes,
                 std::span<const coordinator::Slot> slots);

} // namespace stacksaga::sim
