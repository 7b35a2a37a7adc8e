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

/// True for a node that the next window may give slots to: a worker or an agent, active, of
/// positive weight. Suspected nodes are left out as draining ones are: a node that beats without
/// getting anywhere stays suspected for ever, and what it holds must come free. What either has
/// begun it finishes.
[[nodiscard]] bool takes_slots(const Node &node) noexcept;

/// Whom a master deals to, sorted by name: the agents that take slots and have a worker that does,
/// and the workers that take slots and have no agent. A worker whose agent drains or is lost is as
/// one that has none; while the agent's slots are frozen it is nobody, and keeps what it owns.
///
/// An agent's weight: under `contiguous` its own, so that agents get equal parts and split them
/// equally; under `consistent` that times the sum of its workers' weights, so that each worker gets
/// its share of the ring whoever deals to it, and next to nothing moves when an agent comes or
/// goes.
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
