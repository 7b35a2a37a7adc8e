// Retries of message handlers under the retry budget (handler/process_retry_budget.hpp), one for
// each subscription.
#pragma once
#include "src/handler/process_retry_budget.hpp"
#include "src/outbox/subscription/subscription.hpp"

namespace stacksaga {

/// Asks the budget about all messages whose pause is over in the partitions that the node owns,
/// defers those that it does not let through, and returns how many. Inside with_spi, in a
/// transaction of its own: the budget is not asked again about messages that it has let through.
int64 defer_message_retries(const NodeIdentity &node, const Subscription &s, TimestampTz now);

} // namespace stacksaga
