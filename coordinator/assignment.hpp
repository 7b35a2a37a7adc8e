// Who gets which slot. Pure and deterministic: the same members, owners and strategy give the same
// deal on every machine, whatever order they are given in, so that coordinators side by side
// propose the same.
#pragma once

#include "types.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// A node that takes part in a deal.
struct Member {
    std::string name;
    double weight = 1; ///< finite and > 0
};

/// Slot without an owner among the members.
inline constexpr std::int32_t nobody = -1;

/// Points of one node on the hash ring of the `consistent` strategy.
inline constexpr std::uint32_t virtual_nodes = 128;

/// How many slots each member is to hold: its weight's share of `slots`, rounded down or up,
/// `slots` in sum. Who is rounded up: first those that hold more than the lower number already
/// (nothing has to move), then the larger remainder, then the order of the members. `held[i]` is
/// what member i holds now; empty means nothing. Requires at least one member.
[[nodiscard]] std::vector<std::int32_t>
quotas(std::span<const Member> members, std::span<const std::int32_t> held, std::int32_t slots);

/// Deals slots to members (sorted by name, names unique, at least one). `owners[slot]` is the index
/// of the member that owns the slot now, or `nobody`. Returns the index of each slot's next owner.
///
/// consistent: every member ends within one slot of its weight's share, and as few slots move as
/// that allows. A member that holds too much gives up the slots whose point is nearest before a
/// point of a member that lacks some; a free slot goes to the first member that lacks some,
/// clockwise from the slot's point. Points are made from Murmur3 hashes, 128 per member. (Karger et
/// al. 1997, "Consistent hashing and random trees"; Mirrokni, Thorup, Zadimoghaddam 2016,
/// "Consistent hashing with bounded loads".)
///
/// contiguous: equal runs of slots in the order of the members' names, the first ones one larger;
/// by weight where weights differ. Owners do not matter.
///
/// Cost: O(members log members + slots), plus what the points of the members that lack slots cost,
/// linear in their number on average.
[[nodiscard]] std::vector<std::int32_t>
assign(std::span<const Member> members, std::span<const std::int32_t> owners, Strategy strategy);

} // namespace stacksaga::coordinator
