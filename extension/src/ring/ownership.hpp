// Ownership of slots: how a node comes to own what it should. A window only proposes; a slot gets
// its new owner when that node takes it over, under the fence.
#pragma once
#include "src/ring/node.hpp"

namespace stacksaga {

struct OwnershipChange {
    int taken;       ///< slots that this call took over
    int contended;   ///< slots in use: try again at the next call
    bool superseded; ///< the incarnation is fenced: register again
    bool more;       ///< more is to be taken: commit and call again at once
    int64 opens_in;  ///< until a window opens that proposes more; 0 where none is known
};
static_assert(std::is_trivially_destructible_v<OwnershipChange>);

/// Takes over what a node should own by now. To be called at the start of a worker and then about
/// every heartbeat, each time in a short transaction of its own: the locks on the slots taken last
/// to its end, and the fence keeps other workers out of them until then.
///
/// standalone: the live background workers of this server share the ring in equal runs of slots, in
/// the order of their names; present owners do not matter.
/// A node that drains hands over what it has.
/// Otherwise: what the open window assigns to the node; and when no coordinator has published for
/// some windows, slots whose owner is dead or removed, a few a call, in an order of the node's own,
/// up to the node's equal share.
///
/// It waits for at most one slot in use a call, for 100 ms; a lock that it does not get is no
/// error.
OwnershipChange settle_ownership(const NodeIdentity &node, bool standalone);

} // namespace stacksaga
