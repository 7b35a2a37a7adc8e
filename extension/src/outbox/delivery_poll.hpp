// What a consumer gets: messages of one or more partitions of a subscription, due ones that were
// aside and new ones of the log, in the order of their delivery.
#pragma once
#include "src/outbox/delivery_retry.hpp"
#include "src/outbox/position.hpp"

namespace stacksaga {

/// A partition that a gathering has locked.
struct GatheredPart {
    Position position;
    core::LogPosition end; ///< of what was read of the log
    int32 from_log;        ///< messages of the log among those gathered
};

struct Gathering {
    std::span<GatheredPart> parts;
    std::span<Message> messages;
    bool more;   ///< there may be more at once, also where there are no messages
    int64 moved; ///< messages of the log that were moved aside on the way
};

/// Gathers at most `room` messages from the partitions for which `wanted` is set, those that are
/// the furthest behind first (of equals, that number `rotation`), leaving out those that somebody
/// else works in or has a lease on. What is not to be delivered now is moved aside on the way, of
/// each partition some 1000 messages at most; a partition in which only that was done has its
/// position moved and is not among the parts. Inside with_spi.
Gathering gather(const Subscription &s, std::span<const bool, log_partitions> wanted, int32 room,
                 int32 rotation, TimestampTz now);

/// The fallbacks that are due, in the same partitions; they move no position.
std::span<Message> gather_fallbacks(const Subscription &s,
                                    std::span<const bool, log_partitions> wanted, int32 limit,
                                    TimestampTz now);

/// The position behind the message as well as `at`: what was aside may lie behind the position of
/// its partition, where a batch was cut, and the log would give it once more. Inside with_spi.
core::LogPosition position_behind(const Message &m, core::LogPosition at);

} // namespace stacksaga
