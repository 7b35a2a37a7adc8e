// Messages as values of the type stacksaga.message.
#pragma once
#include "pg/statement/result.hpp"
#include "src/outbox/log/log_read.hpp"

namespace stacksaga {

/// Adds a row of SETOF stacksaga.message.
void add_message(pg::ResultSet &result, const Message &m, int64 batch_id);

/// The argument of a handler; batch_id is null in it.
Datum message_datum(const Message &m);

/// The argument of a handler that takes stacksaga.message[].
Datum message_array_datum(std::span<const Message> messages);

} // namespace stacksaga
