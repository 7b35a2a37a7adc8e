// A worker's turn.
#pragma once
#include "src/ring/node.hpp"

namespace stacksaga {

struct TurnOutcome {
    int64 items;          ///< done
    int64 failures;       ///< handlers that failed
    int64 deferred;       ///< retries that found their budget empty
    bool more;            ///< look again at once
    TimestampTz next_due; ///< the next due instant, after a turn that found nothing; or DT_NOEND
};

/// One batch of due work in the slots that `node` owns, and of each subscription with a handler.
/// Called outside of a transaction: opens and commits its own. The caller resets `memory`, which
/// outlives the transactions, afterwards. An error that is not a handler's leaves its transaction
/// for the caller to abort.
TurnOutcome run_turn(const NodeIdentity &node, std::string_view name, MemoryContext memory);

} // namespace stacksaga
