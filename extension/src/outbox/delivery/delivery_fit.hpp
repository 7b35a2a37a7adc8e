// Messages that cannot be read or sent: they are settled before others are delivered, so that they
// stop none.
#pragma once
#include "src/outbox/log/log_read.hpp"
#include "src/outbox/subscription/subscription.hpp"

namespace stacksaga {

enum class Fit : uint8_t {
    fits,    ///< it has been read
    settled, ///< it could not be, and is dead or put off; what it held is left out
    stuck    ///< of the log: it could not be copied either; its partition waits for it for a while
};

/// Reads the message, and settles it if it cannot be read, or sent to a service: it is dead, or put
/// off where the error may pass, three times. No attempt is charged.
Fit settle_unfit(const Subscription &s, Message &m, TimestampTz now);

} // namespace stacksaga
