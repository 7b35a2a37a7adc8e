// Commands of message steps, as their delivery sees them.
#pragma once
#include "src/outbox/log/log_read.hpp"

namespace stacksaga {

/// Whether the message is the command of a step whose attempt does not have its lease any more: it
/// is not to be delivered. Inside with_spi.
bool is_command_over(const Message &m);

} // namespace stacksaga
