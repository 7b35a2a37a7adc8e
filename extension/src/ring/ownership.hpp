// Ownership of slots: how a node comes to own what it should. A window only proposes; a slot
// changes hands when its new owner takes it over, under the fence.
#pragma once
#include "src/ring/node.hpp"

namespace stacksaga {

struct OwnershipChange {
    int taken;       ///< slots that this call took over
    int contended;   ///< slots that somebody works in: try again at the next call
    bool superseded; ///< the incarnation is out: register again
    bool more;       ///< more is to be taken: commit and call again at once
};
static_assert(std::is_trivially_destructible_v<OwnershipChange>);

/// Takes over what a node should own by now. To be called at the start of a worker and then about
/// every heartbeat, each time in a short transaction of its own: the locks on the slots taken last
/// to its end, and the fence keeps everybody out of them until then.
///
/// standalone: the live background workers of this server share the ring in equal runs of slots, in
/// the order of their names, whoever owns them now.
/// A node that drains gives away what it has.
/// Otherwise: what the open window gives the node; and when nobody has published for some windows,
/// slots whose owner is dead or gone, a few a call, in an order of the node's own, up to the node's
/// equal share.
///
/// A slot that somebody works in is not waited for, save one a call, for 100 ms; a lock that cannot
/// be had is no error.
OwnershipChange settle_ownership(const NodeIdentity &node, bool standalone);

} // namespace stacksaga
