// Retention: finished sagas are removed, with everything that belongs to them, when their time is
// over. Those that run, are suspended or parked never are.
//
// A saga that another one has started lives as long as that one. The runs of a key, the first of
// which says which is the latest, go together. What is removed is found by an index whose order is
// the order of removal; nothing looks at what stays.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

/// What removal remembers between calls: there is nothing left to remove that finished before.
struct RetentionMemory {
    TimestampTz completed_from = DT_NOBEGIN;
    TimestampTz failed_from = DT_NOBEGIN;
};
static_assert(std::is_trivially_destructible_v<RetentionMemory>);

/// Removes up to about `limit` sagas of these slots whose retention is over, oldest first in each
/// slot; those that somebody holds are left for a call with a fresh memory. Returns how many sagas
/// are gone. Inside with_spi.
int64 remove_expired_sagas(int32 ring_id, std::span<const int32> slots, int64 limit,
                           RetentionMemory &memory);

} // namespace stacksaga
