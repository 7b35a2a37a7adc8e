// Calls of handlers and what follows them, as the worker and run_pending() share it.
#pragma once
#include "src/handler/handler.hpp"
#include "src/handler/handler_error.hpp"
#include "src/outbox/delivery/delivery_poll.hpp"

namespace stacksaga {

/// Runs a handler on one message, or on all of them at once, for stacksaga.message_timeout at most.
void call_with(const Subscription &s, const FunctionRef &function, HandlerKind kind,
               std::span<const Message> messages);

/// The meaning of a handler's error for its message.
MessageFailure failure_of(const Subscription &s, const HandlerError &error);

/// The handler has handled the message.
void note_handled(const Subscription &s, const Message &m, TimestampTz now);

/// Moves the positions behind the first `done` of the messages gathered.
void move_positions(const Subscription &s, Gathering &g, size_t done, TimestampTz now);

/// Asks the retry budget of the subscription (handler/process_retry_budget.hpp) about all messages
/// whose pause is over in the partitions that the node owns, defers those that it does not let
/// through, and returns how many. Inside with_spi, in a transaction of its own: the budget is not
/// asked again about messages that it has let through.
int64 defer_message_retries(const NodeIdentity &node, const Subscription &s, TimestampTz now);

} // namespace stacksaga
