// How many slots a window may move: as few as balance asks for, and none of those that wait for an
// agent.
#pragma once

#include "proposal.hpp"

#include <span>

namespace stacksaga::sim {

/// Violation when a proposal moves a slot that a frozen agent keeps, or, under `consistent`, more
/// slots than balance asks for: whoever it deals to keeps what it has, up to its quota. `nodes` and
/// `slots` are what the proposal was made from: all slots, or what an agent was dealt.
void check_moves(const coordinator::Proposal &proposal, coordinator::Strategy strategy,
                 std::span<const coordinator::Node> nodes,
                 std::span<const coordinator::Slot> slots);

} // namespace stacksaga::sim
