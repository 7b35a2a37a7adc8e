// The nodes of one ring, as an assignment of slots sees them. Read by the ring's index, where the
// view `nodes` would compute those of all rings: a master of many rings asks for one after the
// other.
#pragma once
#include "core/ring/members.hpp"
#include "core/ring/slot_owner.hpp"

#include "src/ring/rings.hpp"

namespace stacksaga {

/// Facts about a node besides those that an assignment needs.
struct NodeFacts {
    int64 incarnation;
    int64 heartbeat_age; ///< since its last heartbeat, in microseconds
    bool is_process;     ///< a background worker of this server
    bool draining;       ///< it gives its slots away
    bool may_run;        ///< no background worker whose process has ended
};

struct RingNodes {
    std::span<core::RingNode> nodes; ///< sorted by name
    std::span<NodeFacts> facts;
    std::span<int32> by_incarnation; ///< places, sorted by the incarnation there

    /// The place of an incarnation, or core::nobody.
    int32 find(core::Incarnation incarnation) const;
    int32 find(std::string_view name) const;
    /// The relation of a slot's holder to the node at `place`.
    core::Relation relation(core::Incarnation holder, int32 place) const;
};
static_assert(std::is_trivially_destructible_v<RingNodes>);

/// The nodes of a ring; with `keep`, only those that cannot leave before the end of the
/// transaction, their rows locked: a node that is leaving is passed over. Inside with_spi.
RingNodes read_ring_nodes(const Ring &ring, TimestampTz now, bool keep = false);

} // namespace stacksaga
