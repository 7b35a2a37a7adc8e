// The limits of a queue, the lock under which they are kept, and the tables of queues.
//
// A session that claims from a queue with limits holds the queue's lock exclusively to the end of
// the transaction. So one claimer after the other counts the running steps and commits its claims.
// A session that claims from a queue without limits holds the lock shared, and set_queue() takes it
// exclusively: so no claim stays behind that does not know of the limits. No other call takes it: a
// completion only makes the next count smaller.
#pragma once
#include "pg/pg.hpp"
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
    paused_until,
};

enum class QueueClaimsColumn : uint8 { ring_id = 1, queue, claimed_at, claims };

extern constinit pg::Table queue_table;
extern constinit pg::Table queue_claims_table;

struct QueueLimits {
    std::optional<int32> max_running{};
    std::optional<int32> max_running_per_group{};
    std::optional<int32> rate{};
    int64 rate_interval = 0; ///< in microseconds
    /// Until then only compensations are claimed. DT_NOBEGIN: the queue is not paused; DT_NOEND:
    /// until it is resumed.
    TimestampTz paused_until = DT_NOBEGIN;

    bool is_paused(TimestampTz now) const { return now < paused_until; }
    bool has_any() const { return max_running || max_running_per_group || rate; }
};
static_assert(std::is_trivially_destructible_v<QueueLimits>);

/// All inside with_spi.

/// The limits as they are committed now.
QueueLimits read_limits(int32 ring_id, std::string_view queue);
/// The same, cached. The cache is invalidated no later than the moment at which set_queue()
/// releases the queue's lock, but after it wakes waiters.
QueueLimits limits_of(int32 ring_id, std::string_view queue);

/// Makes every session read the limits of queues again, when this transaction commits.
void announce_limits();

/// Enters the queue to claim from it. nullopt: another session kept it locked for the longest wait,
/// and the caller claims nothing.
std::optional<QueueLimits> enter_queue(int32 ring_id, std::string_view queue);

/// Locks the queue exclusively. Waits up to lock_timeout, and lets claims pass meanwhile.
void lock_limits(int32 ring_id, std::string_view queue);

/// Counts the leased steps of the queue, up to `enough`. A step whose lease ran out counts until
/// the lease is settled.
int32 count_leased(int32 ring_id, std::string_view queue, int32 enough);
int32 count_leased(int32 ring_id, std::string_view queue, std::string_view group, int32 enough);

/// How many steps the limits of the whole queue let through now, and when they let more through.
/// DT_NOEND: when a running step ends, or there is no limit.
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
