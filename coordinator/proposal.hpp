// From what the control tables say to the window that is published. Pure and deterministic, as the
// assignment is: coordinators side by side propose the same.
#pragma once

#include "assignment.hpp"
#include "types.hpp"

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace stacksaga::coordinator {

/// Whether the next window may give slots to a node; see core::takes_slots().
[[nodiscard]] bool takes_slots(const Node &node) noexcept;

/// Whom a master assigns to, sorted by name; see core::members_of().
[[nodiscard]] std::vector<Member> members_of(std::span<const Node> nodes, Strategy strategy);

/// Whom an agent deals to, sorted by name: those of its own workers that take slots.
[[nodiscard]] std::vector<Member> members_of_agent(std::span<const Node> nodes,
                                                   std::string_view agent);

/// A master's window: deals the slots (all, ascending), merges neighbours of one owner. A slot that
/// a worker owns counts as its agent's. The slots of a frozen agent stay with it, the others are
/// dealt as if the ring had no more. Nothing when there are slots to deal and nobody to deal to.
[[nodiscard]] std::optional<Proposal> propose(Instant window_start, Strategy strategy,
                                              std::span<const Node> nodes,
                                              std::span<const Slot> slots);

/// An agent's part of a window: deals the slots that it was dealt (ascending, with the worker of
/// its own that owns each) among its workers. Nothing when it has no slots or no worker for them.
[[nodiscard]] std::optional<Proposal> propose_part(Instant window_start, Strategy strategy,
                                                   std::string_view agent,
                                                   std::span<const Node> nodes,
                                                   std::span<const Slot> slots);

} // namespace stacksaga::coordinator
