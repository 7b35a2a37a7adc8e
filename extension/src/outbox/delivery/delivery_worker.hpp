// Handlers of subscriptions, run by workers and by run_pending().
//
// The position moves in the transaction of the handler's effects: it is the marker, and nothing is
// handled twice. A worker runs the partitions whose first slot it owns, under the fence.
#pragma once
#include "src/ring/node.hpp"

namespace stacksaga {

struct DeliveryOutcome {
    int64 items;          ///< messages handled
    int64 failures;       ///< handlers that failed
    int64 deferred;       ///< retries that found their budget empty
    bool more;            ///< look again at once
    TimestampTz next_due; ///< of the retries; or DT_NOEND
};

/// Makes the tick that is due, then hands batches to each subscription with a handler.
/// Called by a worker outside of a transaction; `memory` as in run_turn().
DeliveryOutcome deliver_messages(const NodeIdentity &node, MemoryContext memory);

/// Delivers at most `limit` messages in the caller's transaction, each handler in a subtransaction;
/// returns how many were handled or have failed. Inside with_spi.
int64 deliver_pending(int32 ring_id, int32 limit);

} // namespace stacksaga
