// Events of a saga's life: a message for each change of status, where its definition names a topic.
#pragma once
#include "pg/pg.hpp"
#include "pg/table/table.hpp"

namespace stacksaga {

/// Publishes the change of a saga's row from an earlier status or direction to that of `after`, in
/// the transaction of the change. Does nothing where the definition has no events_topic. Inside
/// with_spi.
void publish_event(const pg::TableRow &before, const pg::TableRow &after);

} // namespace stacksaga
