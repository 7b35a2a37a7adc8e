// The tables of the outbox that are read without a statement, as far as they are, and the indexes
// that they are read by. SQL writes them, but for the log.
#pragma once
#include "pg/table/table.hpp"

namespace stacksaga {

inline constexpr int generations = 3;

/// The columns of outbox_message.
enum class LogColumn : uint8 {
    number = 1,
    transaction_id,
    origin,
    token,
    published_at,
    ring_id,
    generation,
    stripe,
    message_id,
    topic,
    key,
    type,
    payload,
    headers,
    deliver_at,
};
inline constexpr int log_columns = 15;

enum class TickColumn : uint8 {
    tick = 1,
    number_before,
    number_after,
    origin,
    ticked_at,
    snapshot,
};

enum class PositionColumn : uint8 {
    subscription_id = 1,
    partition,
    version,
    tick,
    number,
    written_at,
    batch_id,
    batch_tick,
    batch_number,
    batch_size,
    batch_total,
    room,
    lease_until,
    consumer,
    lost_tick,
    lost_number,
    answered_at,
    released_batch,
    released_until,
    release_reason,
};

enum class RetryColumn : uint8 {
    subscription_id = 1,
    token,
    number,
    tick,
    partition,
    attempt,
    crashes,
    state,
    due_at,
    failed_since,
    published_at,
    batch_id,
    failed_in,
    message_id,
    topic,
    key,
};

enum class DeadColumn : uint8 {
    subscription_id = 1,
    token,
    number,
    tick,
    partition,
    attempts,
    since,
    dead_since,
    published_at,
    failed_in,
    message_id,
    topic,
    key,
};

// Their indexes, by their place in the description.
enum class LogIndex : uint8 { by_number, by_transaction };
enum class TickIndex : uint8 { primary_key };
enum class PositionIndex : uint8 { primary_key };
enum class RetryIndex : uint8 { primary_key, due, active };
enum class DeadIndex : uint8 { primary_key, place, open };
enum class SubscriptionIndex : uint8 { primary_key };

extern constinit std::array<pg::Table, generations> log_tables;
extern constinit pg::Table tick_table; ///< written as well
extern constinit pg::Table position_table;
extern constinit pg::Table retry_table;
extern constinit pg::Table dead_table;
extern constinit pg::Table subscription_table;

} // namespace stacksaga
