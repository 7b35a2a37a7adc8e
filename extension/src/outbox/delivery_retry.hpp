// Messages moved aside, per subscription: delayed ones, failed ones, what waits behind those of its
// key, and what has failed for good. All of it happens under the lock on the message's partition.
//
// A key is blocked behind each of its messages that is aside and not merely delayed, or dead, where
// the subscription stops on the first failure. The messages behind it wait in the order (tick,
// number); when it ends, the first of them are made ready, and the log of the key is held until
// none is left. In that order what is active, so failed, ready or a fallback to be run, comes
// before what waits, and only messages that are ready come before another active one.
#pragma once
#include "src/outbox/delivery_order.hpp"

namespace stacksaga {

/// All inside with_spi.

/// What is due in a partition, less fallbacks.
struct DueMessages {
    std::span<Message> messages; ///< in the order of their places; attempt is the next one
    bool have_changed; ///< of a batch whose lease ran out some were given up on, or wait now
};

/// At most `limit` of them, those that are due first. Gives up on what has had all its attempts,
/// and lets wait what is behind another of its key that is not among them: there is a dead one, or
/// a delayed one was handed out later and lost with its batch.
DueMessages due_messages(const Subscription &s, int16 partition, int32 limit, TimestampTz now);

/// Whether the fallback of some message is to be run; for whoever has not locked the partition.
bool has_due_fallback(const Subscription &s, int16 partition, TimestampTz now);

/// At most `limit` messages whose fallback is to be run, in the same order; attempt is the last
/// one. Lets wait what is behind another of its key, which was lost with the batch in which it
/// failed.
std::span<Message> due_fallbacks(const Subscription &s, int16 partition, int32 limit,
                                 TimestampTz now);

/// The message that is aside at this place, if it is; attempt is the next one.
std::optional<Message> find_aside(const Subscription &s, core::Token token, int64 tick,
                                  int64 number);

/// The messages of a batch that were aside when it got them, less those that have failed in it;
/// `with_held`: also those that are behind a failure since.
std::span<Message> messages_given(const Subscription &s, int16 partition, int64 batch_id,
                                  bool with_held);

/// What becomes of messages that were just read from the log.
enum class LogFate : uint8_t {
    deliver,
    hold,   ///< its key is blocked
    delay,  ///< deliver_at is to come
    settled ///< it has been moved aside before, by a batch that was not acknowledged
};
void decide_fates(const Subscription &s, std::span<const Message> messages, TimestampTz now,
                  std::span<LogFate> fates);

/// Moves a message of the log aside, as `fate` says (hold or delay).
void move_aside(const Subscription &s, const Message &m, LogFate fate, TimestampTz now);

/// Moves a message aside that the log cannot keep any longer for a subscription that has not read
/// it: it is due at once, or when its turn in its key comes (release_key() has to follow).
void move_unread(const Subscription &s, const Message &m, TimestampTz now);

/// Moves a message of the log aside whose handler may have ended its process: it is handed over
/// alone, when its turn comes.
void suspect(const Subscription &s, const Message &m, std::string_view error, TimestampTz now);

/// The same for all that are aside and due in a partition.
void suspect_due(const Subscription &s, int16 partition, std::string_view error, TimestampTz now);

/// A batch (0: none) gives these aside messages to a consumer.
void note_delivery(const Subscription &s, std::span<const Message> messages, int64 batch_id);

/// Removes a message that was aside and has been handled; what waited behind it is made ready.
void finish_aside(const Subscription &s, const Message &m, TimestampTz now);

struct MessageFailure {
    core::FailureClass failure_class;
    std::string_view error;
    std::optional<int64> retry_after_us{};
    int64 batch_id = 0; ///< in which it failed
};

/// A message failed at its attempt m.attempt: it is tried again later, or its fallback is run, or
/// it is dead; the later ones of its key wait.
void fail_message(const Subscription &s, const Message &m, const MessageFailure &failure,
                  TimestampTz now);

/// The fallback of a message failed as well: it is dead.
void fail_fallback(const Subscription &s, const Message &m, const MessageFailure &failure,
                   TimestampTz now);

/// Of a subscription that nobody works on: all that is aside goes on as it has to in one that
/// stops on the first failure, or as in one that does not.
void apply_stopping(int32 subscription_id, bool stops);

} // namespace stacksaga
