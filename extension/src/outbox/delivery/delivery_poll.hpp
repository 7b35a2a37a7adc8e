// Gathers a consumer's next batch: messages of one or more partitions of a subscription, due
// retries and new ones of the log, in the order of their delivery.
#pragma once
#include "core/outbox/snapshot_window.hpp"

#include "src/outbox/delivery/delivery_retry.hpp"
#include "src/outbox/subscription/consumer_partitions.hpp"
#include "src/outbox/subscription/position.hpp"
#include "src/ring/node.hpp"

namespace stacksaga {

/// A partition that a gathering has locked.
struct GatheredPart {
    Position position;
    core::LogPosition end; ///< where reading of the log ended
    int32 from_log;        ///< messages of the log among those gathered
};

struct Gathering {
    std::span<GatheredPart> parts;
    std::span<Message> messages;
    bool more;      ///< there may be more at once, also where there are no messages
    int64 copied;   ///< messages of the log that were copied out on the way
    bool contended; ///< another session works in a partition
    bool has_lone;  ///< a message was found that comes alone, with the next call
};

/// Gathers at most `room` messages from the partitions that are `wanted`; with `owner`, from those
/// that this node owns, under the fence. It starts with the partitions that are the furthest behind
/// (of equals, with number `rotation`), and leaves out those that another session works in or has a
/// lease on. Messages that are not to be delivered now are copied out on the way, at most some 1000
/// of the partitions that are read together. Where a partition gives no other message, its position
/// moves, and it is not among the parts. Takes no more partitions than the share leaves to its
/// consumer. Inside with_spi.
Gathering gather(const Subscription &s, const PartitionSet &wanted, const NodeIdentity *owner,
                 int32 room, int32 rotation, TimestampTz now, ConsumerShare share = whole_share);

/// The partitions of which the consumer may get some now, as far as they are free: none when it has
/// its share.
PartitionSet offered_to(const ConsumerShare &share, Positions hints, TimestampTz now);

/// The fallbacks that are due, in the same partitions; they move no position.
std::span<Message> gather_fallbacks(const Subscription &s, const PartitionSet &wanted,
                                    const NodeIdentity *owner, int32 limit, TimestampTz now);

/// The later one of `at` and the position behind the message: a retry may lie behind the position
/// of its partition, where a batch was cut, and the log would give it once more. Inside with_spi.
core::LogPosition position_behind(const Message &m, core::LogPosition at);

} // namespace stacksaga
