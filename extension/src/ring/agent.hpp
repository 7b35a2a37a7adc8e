// Agents: which of a ring's agents a node belongs to.
#pragma once
#include "pg/query.hpp"
#include "src/ring/ring.hpp"

namespace stacksaga {

/// The agent of the ring that a worker is dealt to which has none, or whose `older` agent it was:
/// that one while it is there, else the active one with the fewest nodes, in the order of their
/// names. So workers that come one after the other go round. nullopt where the ring has no active
/// agent. Locks the agents' rows, so that workers that register at once are counted one after the
/// other. Inside with_spi; the text is the current context's.
std::optional<std::string_view> agent_for_worker(const Ring &ring,
                                                 std::optional<std::string_view> older);

/// The slots that an agent deals on in the window that starts at `window_start`, ascending: what
/// that window or an earlier one gives it, and what its workers own of what it was given. Columns:
/// slot, and the name of the worker of its own that owns it, or else is to take it over. Inside
/// with_spi.
pg::Rows slots_of_agent(const Ring &ring, int64 incarnation, std::string_view agent,
                        TimestampTz window_start);

} // namespace stacksaga
