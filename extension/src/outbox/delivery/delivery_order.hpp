// Per-key order of retries, in a subscription that stops on the first failure: which blocks, which
// waits, which is next.
//
// A key is known by its token: two keys with the same token wait for each other. Nothing here reads
// more of a key than it changes: its backlog may be as long as the log.
#pragma once
#include "core/outbox/message_state.hpp"
#include "core/ring/token.hpp"

#include "src/outbox/delivery/delivery_row.hpp"

namespace stacksaga {

/// All inside with_spi, under the lock on the key's partition.

/// A message's place in the order of its key.
struct KeyPlace {
    int64 tick;
    int64 number;
    friend constexpr auto operator<=>(const KeyPlace &, const KeyPlace &) = default;
};
inline KeyPlace place_of(const Message &m) {
    return {.tick = m.tick, .number = m.number};
}

/// The first message of the key that is a retry and not merely delayed, or dead: it blocks those
/// behind it. Messages before it are still in the log: of a batch that was lost one in the middle
/// may have failed. Skips those of `together`, which are handed out or redriven together and are in
/// the order of their places.
std::optional<KeyPlace> first_blocker(const Subscription &s, core::Token token,
                                      std::span<const Message> together = {});

/// Whether another message before this one blocks its key.
bool is_behind_another(const Subscription &s, core::Token token, KeyPlace place);

/// Holds a message, which is in this state: it waits for the earlier ones of its key.
void hold(const Subscription &s, core::Token token, KeyPlace place, core::MessageState state);

/// Holds the active messages of the key behind a message that failed or is held, but none in its
/// pause: due_messages() holds that one when its pause is over, so that nothing shortens it.
void hold_behind(const Subscription &s, const Message &m);

/// Releases the messages that wait in front of the first message of the key that is active or dead:
/// the first ones of them, up to a fallback, which runs alone.
void release_key(const Subscription &s, core::Token token, TimestampTz now);

} // namespace stacksaga
