// Positions: how far a subscription has read each partition, and which batch holds it.
#pragma once
#include "core/outbox/snapshot_window.hpp"

#include "src/outbox/outbox.hpp"

namespace stacksaga {

/// The latest version of a position. A batch that a service holds reaches from `at` to `batch_end`;
/// its lease stays valid, even when it ran out, until a later version is written.
struct Position {
    int16 partition;
    int64 version;
    core::LogPosition at;
    int64 batch_id; ///< 0: none
    core::LogPosition batch_end;
    int32 batch_size;  ///< messages of the log in it
    int32 batch_total; ///< all its messages, of its other partitions too
    int32 room;        ///< of the next batch (core/outbox/batch_room.hpp)
    TimestampTz lease_until;
    uint32 consumer;                ///< a hash of its name; 0: none
    core::LogPosition lost_until{}; ///< up to it batches were lost; behind `at`, or {}

    TimestampTz answered_at = DT_NOBEGIN; ///< when a batch was last acknowledged or given back
    // Of the batch that was given back, if that was the last answer.
    int64 released_batch = 0; ///< 0: none, or a consumer has received its messages since
    TimestampTz released_until = DT_NOBEGIN;
    std::optional<std::string_view> release_reason{};

    bool is_leased(TimestampTz now) const { return batch_id != 0 && lease_until > now; }
    /// From when on a consumer may get it.
    TimestampTz free_from() const { return batch_id != 0 ? lease_until : released_until; }
    bool is_free(TimestampTz now) const { return free_from() <= now; }
    /// Its messages were handled.
    void end_release(TimestampTz now) {
        answered_at = now;
        released_batch = 0;
        released_until = DT_NOBEGIN;
        release_reason.reset();
    }
};
static_assert(std::is_trivially_destructible_v<Position>);

using Positions = std::span<Position>; ///< of each partition, by number

/// All inside with_spi. Reads what is committed now.

/// All positions of a subscription, as a hint: they move on. Nothing when it has been dropped.
std::optional<Positions> read_positions(int32 subscription_id, int32 partitions);

/// One of them.
std::optional<Position> read_position(int32 subscription_id, int16 partition);

/// The hash of its consumer's name that a position keeps; not 0.
uint32 consumer_hash(std::string_view consumer);

/// Locks the partition and reads its position; nothing when another session has the lock and `wait`
/// is not asked for, or when the subscription has been dropped.
std::optional<Position> lock_position(int32 subscription_id, int16 partition, bool wait);

/// Appends the version after `p`, as `p` is; `consumer` is only for people. `p.version` is raised.
void write_position(int32 subscription_id, Position &p, TimestampTz now,
                    std::optional<std::string_view> consumer);

/// Appends the next version with the position moved to `to`, and ends its batch.
void move_position(int32 subscription_id, Position &p, core::LogPosition to, TimestampTz now);

/// The same, and keeps the batch, which holds no messages of the log.
void carry_position(int32 subscription_id, Position &p, core::LogPosition to, TimestampTz now);

/// Deletes at most `limit` versions, from the oldest on, but never the latest. Whether there may be
/// more.
bool forget_positions(int32 subscription_id, int16 partition, int64 limit, TimestampTz now);
/// The same, without those that cannot be removed.
bool forget_removable_positions(int32 subscription_id, int16 partition, int64 limit,
                                TimestampTz now);

} // namespace stacksaga
