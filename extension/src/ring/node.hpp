// Nodes: who takes part in a ring. A node that registers again is a new incarnation, and its older
// one is out.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

struct Ring;

/// One incarnation of one node. Incarnations strictly rise and are never given twice.
struct NodeIdentity {
    int32 ring_id;
    int64 incarnation;
};
static_assert(std::is_trivially_destructible_v<NodeIdentity>);

/// Registers a background worker of this server, whose process `pid` is; returns its incarnation.
/// The slots of an older incarnation of that name pass over to it. SG409 when the name is a node of
/// another ring.
int64 register_worker_node(int32 ring_id, std::string_view name, int32 pid);

/// Takes a background worker out of its ring; its slots pass to the others. Nothing when the
/// incarnation is out already.
void leave_ring(const NodeIdentity &node);

/// What a background worker did since it started: what it confirms at a checkpoint.
struct WorkerProgress {
    int64 turns;
    int64 items;
    int64 failures;
};

/// A heartbeat, and the progress where none was told yet or the last is older than the ring's
/// checkpoint_interval. SG412 when the incarnation was superseded or removed: register again.
void beat(const NodeIdentity &node, double load, const WorkerProgress &progress);

/// Removes the nodes of a ring that have been dead for long. Inside with_spi.
void remove_dead_nodes(const Ring &ring);

} // namespace stacksaga
