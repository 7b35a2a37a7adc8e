// The limits of a queue, and the lock under which they are kept.
//
// Who claims from a queue with limits holds its lock exclusively to the end of the transaction, so
// what runs is counted, and what is claimed is committed, by one claimer after the other. Who
// claims from a queue without limits holds it shared: set_queue(), which takes it exclusively,
// leaves no claim behind that does not know of the limits. Nobody else takes it: a completion only
// makes the next count smaller.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

struct QueueLimits {
    std::optional<int32> max_running{};
    std::optional<int32> max_running_per_group{};
    std::optional<int32> rate{};
    int64 rate_interval = 0; ///< in microseconds
    bool is_paused = false;  ///< only compensations are claimed

    bool has_any() const { return max_running || max_running_per_group || rate; }
};
static_assert(std::is_trivially_destructible_v<QueueLimits>);

/// All inside with_spi.

/// As they are committed now.
QueueLimits read_limits(int32 ring_id, std::string_view queue);
/// The same, remembered until this session hears that somebody has changed the limits of a queue:
/// at the latest when who changed them releases the lock of the queue, but after it wakes waiters.
QueueLimits limits_of(int32 ring_id, std::string_view queue);

/// Has every session read the limits of queues again, when this transaction commits.
void announce_limits();

/// Enters the queue to claim from it. Nothing: it is locked, and was for some time; then nothing is
/// to be claimed.
std::optional<QueueLimits> enter_queue(int32 ring_id, std::string_view queue);

/// Locks the queue exclusively. Waits as long as lock_timeout allows, and lets claims go on
/// meanwhile.
void lock_limits(int32 ring_id, std::string_view queue);

/// How many steps of the queue are leased, counted up to `enough`; also those whose lease ran out,
/// until that is settled.
int32 count_leased(int32 ring_id, std::string_view queue, int32 enough);
int32 count_leased(int32 ring_id, std::string_view queue, std::string_view group, int32 enough);

/// How many steps the limits of the whole queue let through now, and when more may be: DT_NOEND:
/// when one of those that run ends, or there is no limit.
struct QueueRoom {
    int32 steps;
    TimestampTz more_at;
};
QueueRoom room_of(int32 ring_id, std::string_view queue, const QueueLimits &limits, int32 wanted,
                  TimestampTz now);

/// Notes claims of a queue that has a rate.
void note_claims(int32 ring_id, std::string_view queue, const QueueLimits &limits, int32 count,
                 TimestampTz now);

} // namespace stacksaga
