// Retention: removes finished sagas, with everything that belongs to them, when their retention is
// over. Sagas that run, are suspended or parked stay.
//
// A child is removed with its parent. The runs of a key are removed together, since the first row
// says which run is the latest; what is left of a key is a row of removed_saga for each of its
// runs, for stacksaga.key_retention. A run that was started after the first one was removed is
// removed on its own.
//
// How long a saga stays is what the settings say now, or what its definition said at its end, which
// has written the instant when it may go. One index in the order of removal finds both; nothing
// reads those that stay.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// The memory of removal between calls: no saga is left that finished before these instants.
struct RetentionMemory {
    TimestampTz completed_from = DT_NOBEGIN;
    TimestampTz failed_from = DT_NOBEGIN;
    TimestampTz kept_from = DT_NOBEGIN; ///< of what goes at an instant of its own
    TimestampTz keys_from = DT_NOBEGIN;
};
static_assert(std::is_trivially_destructible_v<RetentionMemory>);

/// Removes up to about `limit` sagas of these slots whose retention is over, oldest first in each
/// slot. Sagas that another session holds are left for a call with a fresh memory. Returns the
/// number of removed sagas. Inside with_spi.
int64 remove_expired_sagas(int32 ring_id, std::span<const int32> slots, int64 limit,
                           RetentionMemory &memory);

} // namespace stacksaga
