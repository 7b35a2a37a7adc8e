// Computes a window from the nodes and slots of the control tables. Pure and deterministic:
// concurrent coordinators propose the same.
#pragma once

#include "core/ring/assignment.hpp"
#include "roles/control_store.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stacksaga::coordinator {

/// A node that slots are assigned to.
struct Member {
    std::string name;
    double weight = 1; ///< finite and > 0
};

using core::nobody;

/// The number of slots for each member; see core::quotas().
[[nodiscard]] std::vector<std::int32_t>
quotas(std::span<const Member> members, std::span<const std::int32_t> held, std::int32_t slots);

/// The index of each slot's next owner; see core::assign().
[[nodiscard]] std::vector<std::int32_t>
assign(std::span<const Member> members, std::span<const std::int32_t> owners, AssignmentRule rule);

/// Whether the next window may give slots to a node; see core::takes_slots().
[[nodiscard]] bool takes_slots(const Node &node) noexcept;

/// The nodes that a master assigns slots to, sorted by name; see core::members_of().
[[nodiscard]] std::vector<Member> members_of(std::span<const Node> nodes, Strategy strategy);

/// The workers that an agent assigns slots to, sorted by name: those of its own that take slots.
[[nodiscard]] std::vector<Member> members_of_agent(std::span<const Node> nodes,
                                                   std::string_view agent);

/// A master's window: assigns all slots (ascending) and merges neighbours of one owner. A slot that
/// a worker owns counts as its agent's, one that an earlier window gives to another node as that
/// node's, if it still takes slots. A frozen agent keeps its slots; the other slots are assigned as
/// if the ring had no more. Nothing when there are slots to assign but no node for them.
[[nodiscard]] std::optional<Proposal> propose(Instant window_start, AssignmentRule rule,
                                              std::span<const Node> nodes,
                                              std::span<const Slot> slots);

/// An agent's part of a window: assigns the agent's slots (ascending, each with the worker of the
/// agent that owns it) to its workers. Nothing when it has no slots or no worker for them.
[[nodiscard]] std::optional<Proposal> propose_part(Instant window_start, AssignmentRule rule,
                                                   std::string_view agent,
                                                   std::span<const Node> nodes,
                                                   std::span<const Slot> slots);

} // namespace stacksaga::coordinator
