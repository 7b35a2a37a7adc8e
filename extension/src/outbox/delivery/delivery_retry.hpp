// Retries: messages that were copied out of the log for one subscription, since they are delayed,
// failed, or wait for an earlier message of their key; and messages that have failed for good.
// core/outbox/message_state.hpp has their states. Everything here happens under the lock on the
// message's partition.
//
// A message that is dead, or a retry that is not merely delayed, blocks the later messages of its
// key, where the subscription stops on the first failure. They wait in the order (tick, number).
// When it ends, the first of them are released, and the log of the key is held until none is left.
// In that order a held message has only held ones and ones in their pauses behind it, and a message
// that failed behind another is held when it is due.
#pragma once
#include "core/saga/saga_state.hpp"

#include "src/outbox/delivery/delivery_order.hpp"

namespace stacksaga {

/// All inside with_spi.

struct DueMessages {
    std::span<Message> messages;
    bool is_cut; ///< there are more
};

/// The due messages of a partition, without fallbacks: at most `limit` messages, those that are due
/// first, in the order of their places, and none behind those whose payloads pass `bytes`; attempt
/// is the next one. Gives up on messages that have had
/// all their attempts. Holds those that are behind another one of their key that is not among them:
/// a dead one, one in its pause, or a delayed one that was handed out later and lost with its
/// batch.
DueMessages due_messages(const Subscription &s, int16 partition, int32 limit, uint64 bytes,
                         TimestampTz now);

/// The partitions in which something is due, as a hint for callers that have not locked them.
PartitionSet due_partitions(const Subscription &s, TimestampTz now);

/// Whether a message that may be delivered is due, and no fallback alone; for such callers, too.
bool has_due_message(const Subscription &s, int16 partition, TimestampTz now);

/// When the next retry of these partitions falls due; DT_NOEND: none waits for an instant.
TimestampTz next_retry(const Subscription &s, const PartitionSet &partitions, TimestampTz now);

/// Whether the fallback of some message is to run; for callers that have not locked the partition.
bool has_due_fallback(const Subscription &s, int16 partition, TimestampTz now);

/// At most `limit` messages whose fallback is to run, in the same order; attempt is the last one.
/// Holds those that are behind another one of their key, which was lost with the batch in which it
/// failed.
std::span<Message> due_fallbacks(const Subscription &s, int16 partition, int32 limit,
                                 TimestampTz now);

/// Dispositions of messages that were just read from the log.
enum class Disposition : uint8_t {
    deliver,
    hold,   ///< an earlier message blocks its key
    delay,  ///< deliver_at is to come
    over,   ///< the command of an attempt that has lost its lease: not to be delivered
    settled ///< a batch that was not acknowledged has copied it out before
};
void decide_dispositions(const Subscription &s, std::span<const Message> messages, TimestampTz now,
                         std::span<Disposition> dispositions);

/// Whether a message of the log is a retry already, or dead.
bool is_settled(const Subscription &s, const Message &m);

/// Copies a message out of the log, to hold or to delay it.
void copy_out(const Subscription &s, const Message &m, Disposition disposition);

/// Copies out messages that are not to be read from the log any more, in the order of their keys:
/// they are due at once, or delayed, or held.
void copy_out_unhandled(const Subscription &s, std::span<const Message> messages,
                        std::string_view reason, TimestampTz now);

/// Copies out a message of a batch with which the process of its handler crashed: it is delivered
/// on its own, in its turn.
void copy_out_after_crash(const Subscription &s, const Message &m, std::string_view error,
                          TimestampTz now);

/// Removes a retry that has been handled, and releases the messages that it blocked.
void finish_retry(const Subscription &s, const Message &m, TimestampTz now);

struct MessageFailure {
    core::FailureClass failure_class;
    std::string_view error;
    std::optional<int64> retry_after_us{};
    int64 batch_id = 0;           ///< in which it failed
    bool process_crashed = false; ///< the handler ended its process
    ErrorDetail detail{};
};

/// A message failed at its attempt m.attempt: it is tried again later, or its fallback is to run,
/// or it is dead. Holds the later messages of its key.
void fail_message(const Subscription &s, const Message &m, const MessageFailure &failure,
                  TimestampTz now);

/// The fallback of a message failed as well: the message is dead.
void fail_fallback(const Subscription &s, const Message &m, const MessageFailure &failure,
                   TimestampTz now);

} // namespace stacksaga
