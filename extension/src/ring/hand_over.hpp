// Hand-over: a node that leaves or drains gives its slots away itself, so that they are not without
// an owner until a window assigns them.
#pragma once
#include "src/ring/node.hpp"
#include "src/ring/ring.hpp"

namespace stacksaga {

/// Gives the slots of a worker node to the nodes that the ring's rule says (core/hand_over.hpp),
/// each under the exclusive lock on the slot, and withdraws what windows propose for it. Looks at
/// most `looks` times; each waits at most 100 ms for a slot that somebody works in. What is left
/// then is proposed to its successor, which takes it over at its next heartbeat. Returns how many
/// those are. Where no other node takes slots, all stays as it is.
///
/// The nodes that get slots cannot leave before the end of the transaction. Inside with_spi; the
/// caller has locked the node's row, or holds slots that it gives away at its next heartbeat too.
int hand_over(const Ring &ring, const NodeIdentity &node, int looks);

} // namespace stacksaga
