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

} // namespace stacksaga
