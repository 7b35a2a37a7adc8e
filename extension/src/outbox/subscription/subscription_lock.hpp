// Subscriptions that are altered, dropped or taken over from: no session may work on them.
#pragma once
#include "src/outbox/subscription/position.hpp"
#include "src/outbox/subscription/subscription.hpp"

namespace stacksaga {

/// All inside with_spi.

/// SG409: a session works on the subscription.
[[noreturn]] void raise_in_use(const Subscription &s, const char *detail, const char *hint);

/// SG409 when a batch holds the partition.
void require_unleased(const Subscription &s, const Position &position, TimestampTz now);

/// The subscription, with its settings and its partitions locked; waits for sessions that work on
/// it. SG404 when there is none, SG409 in its own handler.
const Subscription &lock_subscription(std::string_view name);

} // namespace stacksaga
