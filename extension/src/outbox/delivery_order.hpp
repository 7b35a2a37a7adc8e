// What messages of one key that are aside are to each other, in a subscription that stops on the
// first failure: which of them blocks it, which wait, whose turn has come.
//
// A key is known by its token: should two keys ever have the same one, they wait for each other.
// Nothing here reads more of a key than it changes: its backlog may be as long as the log.
#pragma once
#include "src/outbox/subscription.hpp"

namespace stacksaga {

/// All inside with_spi, under the lock on the key's partition.

/// Where a message is in the order of its key.
struct KeyPlace {
    int64 tick;
    int64 number;
    friend constexpr auto operator<=>(const KeyPlace &, const KeyPlace &) = default;
};

/// The first message of the key that is aside and not merely delayed, or dead: what comes behind it
/// is blocked. Those before it are on their way: of a batch that was lost something in the middle
/// may have failed. Less those that are handed out together, which are in the order of their
/// places.
std::optional<KeyPlace> first_blocker(const Subscription &s, core::Token token,
                                      std::span<const Message> together = {});

/// Whether something before this place blocks its key.
bool is_behind_another(const Subscription &s, core::Token token, int64 tick, int64 number);

/// Puts a message back that is active: it waits for those before it in its key. A fallback stays
/// one.
void hold(const Subscription &s, core::Token token, KeyPlace place);

/// Puts back whatever is active behind a message that failed or waits: what was ready, and what had
/// failed in a batch that was lost. A fallback that waits stays one.
void hold_active(const Subscription &s, core::Token token, KeyPlace place);

/// Puts back a message that has failed when another one before it in its key is tried again or
/// dead: a consumer that goes on after a failure may fail several.
void hold_behind_failure(const Subscription &s, core::Token token, KeyPlace failed);

/// Makes ready what waits in front of the first message of the key that is active or dead: the
/// first ones of it, up to a fallback, which is run alone.
void release_key(const Subscription &s, core::Token token, TimestampTz now);

} // namespace stacksaga
