// Due work that calls no function of a user: deadlines, timers, leases that ran out, children,
// signals and messages of sagas.
#pragma once
#include "src/ring/node.hpp"

namespace stacksaga {

/// Runs the due work of the node's slots, each item in a transaction of its own, for at most a
/// quarter of a second. Returns the microseconds until it should look again. Outside of a
/// transaction; the caller resets `memory`.
int64 run_timed_items(const NodeIdentity &node, std::string_view name, MemoryContext memory);

} // namespace stacksaga
