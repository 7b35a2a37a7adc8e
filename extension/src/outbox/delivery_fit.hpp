// Messages that cannot be read or sent: they are settled before others are delivered, so that they
// stop none.
#pragma once
#include "src/outbox/log_read.hpp"
#include "src/outbox/subscription.hpp"

namespace stacksaga {

/// Settles the message if it cannot be read, or sent to a service: it is dead, or tried again later
/// where the error may pass, three times. What it held is left out then. Else it has been read.
bool settle_unfit(const Subscription &s, Message &m, TimestampTz now);

} // namespace stacksaga
