// Messages that the running handler of a step has published, for the history of its saga: the log
// does not say which saga a message is of, and forgets it when it was delivered.
#pragma once
#include "core/saga/saga.hpp"

#include "pg/pg.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga {

extern const pg::TransactionUser published_message_events;

struct PublishedMessage {
    pg_uuid_t id;
    std::string_view topic;
    std::optional<std::string_view> key;
};

/// A handler of a step is about to be called.
void forget_published();

/// A message is published; it counts if a handler of a step publishes it.
void note_published(const PublishedMessage &message);

/// The messages that the returned handler has published, less those it rolled back:
/// {"count": 25, "messages": [{"topic", "key", "message_id"}, ...]}, the first 20 of them. Null:
/// nothing.
core::Value published_messages();

} // namespace stacksaga
