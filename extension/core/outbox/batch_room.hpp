// How many messages the next batch of a partition may hold, after batches that were lost.
//
// Any message of a lost batch may have ended its consumer. So the next batch of its partitions is
// half as large, whether its messages are new or retries, until the message that ends consumers is
// alone: only then an attempt is charged, and to that message alone. Each batch that is answered
// doubles the room again.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stacksaga::core {

inline constexpr std::int32_t any_room = 0; ///< batches are as large as their consumers ask
inline constexpr std::int32_t batch_messages_max = 10000;

/// The room after a batch was lost that held this number of messages in all its partitions.
constexpr std::int32_t room_after_loss(std::int32_t messages) {
    return std::max(1, messages / 2);
}

/// Behind a batch that was answered.
constexpr std::int32_t room_after_answer(std::int32_t room) {
    return room > batch_messages_max / 2 ? any_room : room * 2;
}

/// Whether the message of a lost batch is charged an attempt.
constexpr bool is_charged_for_loss(std::int32_t messages) {
    return messages == 1;
}

/// How many messages a partition with this room may add to what a batch holds already, and
/// has a place for `left` more. 0: it waits for another batch.
constexpr std::int32_t room_in_batch(std::int32_t room, std::int32_t held, std::int32_t left) {
    return room == any_room ? left : std::clamp(room - held, 0, left);
}

} // namespace stacksaga::core
