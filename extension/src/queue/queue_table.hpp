// The tables of queues: their limits, and the recent claims of queues with a rate.
#pragma once
#include "pg/table/table.hpp"

namespace stacksaga {

enum class QueueColumn : uint8 {
    ring_id = 1,
    queue,
    max_running,
    max_running_per_group,
    rate,
    rate_interval,
    paused_at,
    pause_reason,
};

enum class QueueClaimsColumn : uint8 { ring_id = 1, queue, claimed_at, claims };

extern constinit pg::Table queue_table;
extern constinit pg::Table queue_claims_table;

} // namespace stacksaga
