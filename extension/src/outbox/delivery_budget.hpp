// Retries of message handlers under the retry budget (ring/retry_budget.hpp), one for each
// subscription.
#pragma once
#include "src/outbox/outbox.hpp"
#include "src/ring/retry_budget.hpp"

namespace stacksaga {

/// Asks the budget about all messages that have failed and are due again in the partitions that are
/// `wanted`, and makes those due later that it does not let through.
/// Returns how many. Inside with_spi, in a transaction of its own: what the budget has let through
/// once is not asked for again.
int64 defer_message_retries(const NodeIdentity &node, int32 subscription_id,
                            std::span<const bool, log_partitions> wanted, TimestampTz now);

} // namespace stacksaga
