// Agents: which of a ring's agents a node belongs to.
#pragma once
#include "pg/statement/query.hpp"
#include "src/ring/rings.hpp"

namespace stacksaga {

/// The agent that a worker is assigned to: `older`, its last one, while that is there, else the
/// active one with the fewest nodes, in the order of their names: so new workers get the agents in
/// turn. nullopt where the ring has no active agent. Locks the agents' rows, so that workers that
/// register at once are counted one after the other. Inside with_spi; the text is the current
/// context's.
std::optional<std::string_view> agent_for_worker(const Ring &ring,
                                                 std::optional<std::string_view> older);

struct AgentSlot {
    int32 slot;
    std::string_view worker; ///< its worker that owns the slot, or else is to take it over, or ""
};

/// The slots that an agent assigns in the window that starts at `window_start`, ascending: those
/// that this window or an earlier one assigns to it, and those of them that its workers own. Inside
/// with_spi; the list is the current context's.
std::span<const AgentSlot> slots_of_agent(const Ring &ring, int64 incarnation,
                                          TimestampTz window_start);

} // namespace stacksaga
