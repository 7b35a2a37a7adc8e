// How many partitions a consumer may hold, so that as many consumers as partitions are served.
//
// Consumers are the names that asked for messages or held a batch within the last 30 seconds. They
// stand in the mapped file of counter_file.hpp, without a lock: asking writes one place there, and
// looks through all of them, whose number is fixed. A place that is lost or counted twice for a
// moment makes shares larger or smaller, and nothing wrong.
#pragma once
#include "core/outbox/partition.hpp"

#include "src/outbox/subscription/position.hpp"
#include "src/outbox/subscription/subscription.hpp"

namespace stacksaga {

struct ConsumerShare {
    uint32 consumer;  ///< a hash of its name; 0: a handler's
    int32 partitions; ///< that it may hold
};
inline constexpr ConsumerShare whole_share{.consumer = 0, .partitions = core::partitions_max};

/// The consumer asks for messages: its share of the partitions, or all of them where no other one
/// has asked within the last second.
ConsumerShare ask_for_share(const Subscription &s, std::string_view consumer, TimestampTz now);

/// The consumer holds a batch until then, or longer than it did.
void note_held(int32 subscription_id, std::string_view consumer, TimestampTz until);

/// It has answered for a batch whose lease would have lasted until then.
void note_answered(int32 subscription_id, std::string_view consumer, TimestampTz lease_until,
                   TimestampTz now);

} // namespace stacksaga
