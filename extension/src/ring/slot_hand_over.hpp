// Hand-over: a node that leaves or drains hands its slots to others itself, so that they are not
// without an owner until a window assigns them.
#pragma once
#include "src/ring/node.hpp"
#include "src/ring/rings.hpp"

namespace stacksaga {

/// Hands the slots of a worker node to the nodes that the ring's rule names
/// (core/ring/hand_over.hpp), each under the exclusive lock on the slot, and withdraws what windows
/// propose for it. Tries at most `looks` times; each try waits at most 100 ms for a slot in use.
/// The rest is proposed to its successors, which take it over at their next heartbeats. Returns how
/// many slots those are. Where no other node takes slots, nothing changes.
///
/// The nodes that get slots cannot leave before the end of the transaction. Inside with_spi; the
/// caller has locked the node's row, or holds slots that it hands over at its next heartbeat too.
int hand_over(const Ring &ring, const NodeIdentity &node, int looks);

} // namespace stacksaga
