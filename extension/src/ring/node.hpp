// Nodes: the members of a ring. A node that registers again is a new incarnation, which fences its
// older one.
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

/// Registers a background worker of this server, process `pid`; returns its incarnation. The slots
/// of an older incarnation of that name pass to it. SG409 when the name is a node of
/// another ring.
int64 register_worker_node(int32 ring_id, std::string_view name, int32 pid);

/// Removes a background worker from its ring; its slots pass to the others. Nothing when the
/// incarnation was superseded or removed.
void leave_ring(const NodeIdentity &node);

/// The counts of a background worker since it started, which it confirms at a checkpoint.
struct WorkerProgress {
    int64 turns;
    int64 items;
    int64 failures;
};

/// A heartbeat, with the progress where none was reported yet or the last report is older than the
/// ring's checkpoint_interval. SG412 when the incarnation was superseded or removed: register
/// again.
void beat(const NodeIdentity &node, double load, const WorkerProgress &progress);

/// A heartbeat for a background worker that is in a handler, where one is due: it can send none.
void beat_for(const NodeIdentity &node);

/// Removes the nodes of a ring that have been dead for long. Inside with_spi.
void remove_dead_nodes(const Ring &ring);

/// The memory of a background process about each node that it works as: one for each ring.
template <class T> class NodeMemory {
    static_assert(std::is_trivially_destructible_v<T>);

public:
    /// The memory of the node: T{} at first, and when it has registered again.
    T &of(const NodeIdentity &node) {
        if (table_ == nullptr) {
            HASHCTL control{};
            control.keysize = sizeof(int32);
            control.entrysize = sizeof(Entry);
            table_ = hash_create("stacksaga nodes", 8, &control, HASH_ELEM | HASH_BLOBS);
        }
        bool is_known = false;
        auto *entry =
            static_cast<Entry *>(hash_search(table_, &node.ring_id, HASH_ENTER, &is_known));
        if (!is_known || entry->incarnation != node.incarnation)
            *entry = {.ring_id = node.ring_id, .incarnation = node.incarnation, .value = T{}};
        return entry->value;
    }

private:
    struct Entry {
        int32 ring_id; ///< the key
        int64 incarnation;
        T value;
    };

    HTAB *table_ = nullptr;
};

} // namespace stacksaga
