// Computes a window from the nodes and slots of the control tables. Pure and deterministic, as the
// assignment is: concurrent coordinators propose the same.
#pragma once

#include "roles/assignment.hpp"
#include "roles/control_store.hpp"

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace stacksaga::coordinator {

/// Whether the next window may give slots to a node; see core::takes_slots().
[[nodiscard]] bool takes_slots(const Node &node) noexcept;

/// The nodes that a master assigns slots to, sorted by name; see core::members_of().
[[nodiscard]] std::vector<Member> members_of(std::span<const Node> nodes, Strategy strategy);

/// The workers that an agent assigns slots to, sorted by name: those of its own that take slots.
[[nodiscard]] std::vector<Member> members_of_agent(std::span<const Node> nodes,
                                                   std::string_view agent);

/// A master's window: assigns all slots (ascending) and merges neighbours of one owner. A slot that
/// a worker owns counts as its agent's. A frozen agent keeps its slots; the other slots are
/// assigned as if the ring had no more. Nothing when there are slots to assign but no node for
/// them.
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
