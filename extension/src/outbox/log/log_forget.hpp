// Old ticks, positions and batches: rows that reading the log leaves behind.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// Deletes ticks before `least`, all but the latest versions of positions, and what is older than
/// `since`: batches that hold nothing and discarded messages. Returns whether there is more to
/// delete at once. Inside with_spi, by one session at a time.
///
/// Without `in_any_case` it does nothing while vacuum cannot remove the rows that this session has
/// deleted before.
bool forget_log(int64 least, TimestampTz since, bool in_any_case);

} // namespace stacksaga
