// Lost batches: the lease ran out, and another session takes the partitions.
#pragma once
#include "src/outbox/delivery/delivery_row.hpp"

namespace stacksaga {

/// All inside with_spi, under the lock on the partition.

/// Why a message that was charged for losses fails in the end.
inline constexpr std::string_view unanswered_error =
    "its consumers have not answered before their leases ran out";

/// Notes in the position, which is to be written, and in the retries of its batch that an attempt
/// of each may have taken effect.
void doubt_batch(const Subscription &s, Position &p);

/// Ends the batch that holds the partition, if there is one and its lease has run out; the caller
/// writes the position. Unless all its messages were answered for, the next batch is half as large
/// (core/outbox/batch_room.hpp), and a message that was alone with its consumer is charged an
/// attempt: it becomes a retry, which is due at once.
void end_lost_batch(const Subscription &s, Position &p, TimestampTz now);

/// Whether the batch, whose lease has run out, had a single message, and its consumer has others
/// yet that it held at the same time: when they are answered, that message alone was lost. Until
/// then, but no longer than the lease was, the partition waits.
bool waits_for_company(const Subscription &s, const Position &p, TimestampTz now);

} // namespace stacksaga
