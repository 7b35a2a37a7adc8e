// Due work that calls no function of a user: deadlines, timers, leases that ran out, children,
// signals and messages of sagas.
#pragma once
#include "src/ring/node.hpp"

namespace stacksaga {

/// Does what is due in the node's slots, each item in a transaction of its own, for at most a
/// quarter of a second. Returns after how many microseconds to look again. Outside of a
/// transaction; `memory` is reset by the caller.
int64 run_timed_items(const NodeIdentity &node, std::string_view name, MemoryContext memory);

} // namespace stacksaga
