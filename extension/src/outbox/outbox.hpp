// The outbox as the rest of the extension sees it: publishing, partitions of
// subscriptions, and the charge of a crash to the messages that a process was delivering.
#pragma once
#include "core/outbox/partition.hpp"
#include "core/outbox/snapshot_window.hpp"

#include "pg/pg.hpp"
#include "src/handler/crash_record.hpp"

namespace stacksaga {

/// Which partitions of a subscription, by number.
using PartitionSet = std::array<bool, core::partitions_max>;

inline constexpr int topic_bytes_max = 255;

/// SG400 unless messages can be published to it.
void check_topic(std::string_view topic, const char *argument);

/// The arguments of publish().
struct NewMessage {
    std::string_view topic;
    std::optional<std::string_view> key;
    std::optional<std::string_view> type;
    std::optional<Datum> payload; ///< jsonb
    std::optional<Datum> headers; ///< jsonb object; nothing: {}
    std::optional<pg_uuid_t> message_id;
    std::optional<TimestampTz> deliver_at;
};

/// The id of the command of a message step: `lease` is that of its attempt, as text. The command is
/// delivered while its attempt has this lease.
pg_uuid_t command_id(std::string_view saga_id, std::string_view lease);

/// Appends a message, which the caller has checked, to the log of the ring; returns its id. It may
/// have any size: stacksaga.max_payload limits arguments of users. As the owner of the extension.
pg_uuid_t publish_message(int32 ring_id, const NewMessage &message);

/// Charges the recorded attempt as a failure, from the third one on for good. Does nothing when
/// another session has settled the message since. False: its partition is locked. Inside with_spi.
bool charge_crashed_message(const CrashRecord &record, std::string_view worker);

/// One message of the batch ended the process: all of them become retries, which are delivered one
/// by one. Does nothing in partitions whose position has moved since. False: a partition is locked.
/// Inside with_spi.
bool charge_crashed_batch(const RecordedBatch &batch, std::string_view worker);

} // namespace stacksaga
