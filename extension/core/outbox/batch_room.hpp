// How many messages the next batch of a partition may hold, after batches that were lost, and which
// batch a consumer may get next.
//
// Any message of a lost batch may have ended its consumer. So the next batch of its partitions is
// half as large, whether its messages are new or retries, until the message that ends consumers is
// alone: only then an attempt is charged, and to that message alone. Each batch that is answered
// doubles the room again.
//
// A message is alone when its consumer lost no other batch that it held at the same time. One that
// is lost in company is not charged: it comes next to a consumer that holds nothing else, which
// gets nothing else until it answers. So the second loss tells.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stacksaga::core {

inline constexpr std::int32_t any_room = 0; ///< batches are as large as their consumers ask
/// One message, for a consumer that holds nothing else.
inline constexpr std::int32_t lone_room = -1;
inline constexpr std::int32_t batch_messages_max = 10000;

/// What else the consumer of a lost batch held at the same time.
enum class Company : std::uint8_t {
    none,
    open, ///< a batch that is neither answered nor lost yet
    lost,
};

/// Whether the message of a lost batch is charged an attempt.
constexpr bool is_charged_for_loss(std::int32_t messages, Company company) {
    return messages == 1 && company == Company::none;
}

/// The room after a batch was lost that held this number of messages in all its partitions.
constexpr std::int32_t room_after_loss(std::int32_t messages, Company company) {
    return messages == 1 && company != Company::none ? lone_room : std::max(1, messages / 2);
}

/// How many messages a batch with a partition may hold that has this room.
constexpr std::int32_t most_messages(std::int32_t room) {
    return room == lone_room ? 1 : room;
}

/// Behind a batch that was answered.
constexpr std::int32_t room_after_answer(std::int32_t room) {
    return room > batch_messages_max / 2 ? any_room : most_messages(room) * 2;
}

/// How many messages a partition with this room may add to what a batch holds already, and
/// has a place for `left` more. 0: it waits for another batch.
constexpr std::int32_t room_in_batch(std::int32_t room, std::int32_t held, std::int32_t left) {
    return room == any_room ? left : std::clamp(most_messages(room) - held, 0, left);
}

/// Which batch a consumer may get.
enum class Offer : std::uint8_t {
    nothing,
    lone, ///< one message of a partition with `lone_room`
    any,  ///< of the other partitions
};

/// `waits`: a partition with `lone_room` is free. Then a consumer that holds something gets nothing
/// until it has answered, or else no consumer that is always busy would ever get that message.
constexpr Offer offer_to(bool holds_any, bool holds_lone, bool waits) {
    if (holds_lone || (holds_any && waits))
        return Offer::nothing;
    return waits ? Offer::lone : Offer::any;
}

} // namespace stacksaga::core
