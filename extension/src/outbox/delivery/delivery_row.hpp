// Rows of message_retry and dead_message, read as messages and written with the states that
// core/outbox/message_state.hpp names.
#pragma once
#include "core/outbox/message_state.hpp"
#include "core/ring/token.hpp"

#include "src/handler/handler_error.hpp"
#include "src/outbox/subscription/position.hpp"
#include "src/outbox/subscription/subscription.hpp"

namespace stacksaga {

/// All inside with_spi, under the lock on the message's partition.

/// The state that a row of message_retry has.
core::MessageState retry_state_of(std::string_view name);

/// The state that the table has for this pair. An error where the pair is not possible.
core::MessageState next_state(core::MessageState from, core::MessageEvent event);

/// At most `limit` retries of a partition that are due and in a state that `is_wanted`, those that
/// are due first; in the order of their places.
std::span<Message> due_rows(const Subscription &s, int16 partition, int32 limit, TimestampTz now,
                            bool (*is_wanted)(core::MessageState));

/// The retry at this place, if there is one; attempt is the next one.
std::optional<Message> find_retry(const Subscription &s, core::Token token, int64 tick,
                                  int64 number);

/// The messages of a batch that were retries when it got them, without those that failed in it;
/// `with_held`: also those that are held behind a failure since.
std::span<Message> messages_given(const Subscription &s, int16 partition, int64 batch_id,
                                  bool with_held);

/// The fields of a row of message_retry besides those that were published.
struct RetryRow {
    core::MessageState state;
    TimestampTz due_at;
    int32 attempt = 0;
    int32 crashes = 0;
    std::optional<TimestampTz> failed_since{}; ///< unless the row has failed before
    int64 failed_in = 0;
    std::optional<std::string_view> error{};
    ErrorDetail detail{}; ///< of this error
    int32 postponed = 0;  ///< times in a row, since it could not be read
};

/// Writes the row of a message, whether or not there is one.
void write_retry(const Subscription &s, const Message &m, const RetryRow &row);

void delete_retry(const Subscription &s, const Message &m);

/// Moves a message to dead_message; `failed_in`: the batch, 0: none.
void write_dead(const Subscription &s, const Message &m, int64 failed_in, std::string_view error,
                const ErrorDetail &detail, TimestampTz now);

/// A batch gives these messages to a consumer, under its lease.
void note_delivery(const Subscription &s, std::span<const Message> messages, int64 batch_id);

/// The batch gives back the retries of a partition that it has neither failed nor held.
void note_given_back(const Subscription &s, int16 partition, int64 batch_id);

/// Says which of these messages of the log were in a batch that was lost.
void mark_in_doubt(const Position &p, std::span<Message> messages);

/// The process of a handler crashed with a batch that held the due retries of this partition: each
/// of them is delivered on its own from now on.
void count_crash(const Subscription &s, int16 partition, std::string_view error, TimestampTz now);

/// Of a subscription that no session works on: its retries continue as in one that stops on the
/// first failure, or as in one that does not.
void apply_stopping(int32 subscription_id, bool stops);

} // namespace stacksaga
