// Reading the log: the messages of partitions behind their positions, window by window.
#pragma once
#include "core/outbox/message_state.hpp"
#include "core/outbox/partition.hpp"
#include "core/outbox/snapshot_window.hpp"
#include "core/ring/token.hpp"

#include "src/outbox/log/log_tick.hpp"
#include "src/outbox/outbox.hpp"

namespace stacksaga {

/// A message on its way to a subscription. Datums of absent columns are 0; topic, key and type are
/// text, payload and headers jsonb.
struct Message {
    int64 number;
    int64 tick;          ///< of its window; messages of a key are delivered by (tick, number)
    int64 previous_tick; ///< the tick before that one; not of a retry
    core::Token token = core::Token::from_int64(0);
    int16 partition; ///< of the subscription
    int32 attempt;   ///< how often it has been given to a consumer, this time included
    core::MessageState state;
    int32 crashes;   ///< how often in a row the process of its handler crashed
    int32 postponed; ///< how often in a row it could not be read, and was put off
    bool has_failed; ///< an attempt failed, whatever has happened since
    bool in_doubt;   ///< an attempt before this one may have taken effect: it was lost or unknown
    pg_uuid_t id;
    TimestampTz published_at;
    std::optional<TimestampTz> deliver_at;
    Datum topic, key, type, payload, headers;
    Datum last_error;     ///< text
    uint64 payload_bytes; ///< as text, where it was counted; 0: it was not

    /// From message_retry, not from the log.
    bool is_retry() const { return state != core::MessageState::in_log; }
    /// A handler that takes batches gets it on its own.
    bool is_alone() const { return core::is_delivered_alone(has_failed, crashes); }
    std::optional<std::string_view> key_text() const;
    /// The position behind a message of the log.
    core::LogPosition end() const { return {.tick = previous_tick, .number = number}; }
};
static_assert(std::is_trivially_destructible_v<Message>);

/// The order in which messages of a key are delivered.
inline bool by_place(const Message &a, const Message &b) {
    return a.tick != b.tick ? a.tick < b.tick : a.number < b.number;
}

/// The part of the log that a subscription wants.
struct LogFilter {
    int32 ring_id;
    int32 partitions;
    std::string_view topic; ///< without the asterisk
    bool is_prefix;
    int64 start_origin;
    const core::Snapshot
        *start; ///< messages that it sees are older than the subscription; may be null

    /// Of a subscription that another one has taken over from: it reads no more.
    bool is_over = false;
    /// How far the subscription that it has taken over from had read, by partitions of that one or
    /// finer ones; empty: its own positions say it.
    std::span<const core::LogPosition> taken_over{};

    /// Whether the subscription that it has taken over from had read the message.
    bool was_read(core::Token token, core::LogPosition end) const {
        return !taken_over.empty() && end <= taken_over[static_cast<size_t>(partition_of(
                                                 token, static_cast<int32>(taken_over.size())))];
    }
    bool wants(std::string_view message_topic) const {
        return is_prefix ? message_topic.substr(0, topic.size()) == topic : message_topic == topic;
    }
};

/// The partitions that a read is for: adjacent ones, which have stripes of the log in common.
struct LogShare {
    int16 first;
    std::span<const core::LogPosition> from; ///< of the first one, the next one, ..

    /// Of a partition that the read leaves out.
    static constexpr core::LogPosition nowhere{.tick = PG_INT64_MAX, .number = 0};

    core::LogPosition begin() const { return *std::min_element(from.begin(), from.end()); }
    core::Stripes stripes(int32 partitions) const {
        return core::stripes_of(first, first + static_cast<int>(from.size()) - 1, partitions);
    }
    /// Whether it is for this message of that partition.
    bool wants(int16 partition, core::LogPosition end) const {
        const int at = partition - first;
        return at >= 0 && static_cast<size_t>(at) < from.size() &&
               from[static_cast<size_t>(at)] < end;
    }
};

struct LogPart {
    std::span<Message> messages; ///< in the order of their delivery
    core::LogPosition end;       ///< behind them
    int64 window;                ///< the tick of the window that end.number is in; 0: in none
    bool more;                   ///< there is more behind `end` at once
    int64 distance;              ///< about how many numbers lie between the two positions

    /// The part of it that one partition, which is read up to `from`, gets: at most `room`
    /// messages.
    LogPart of_partition(int16 partition, core::LogPosition from, int32 room) const;
};

/// At most `room` messages (1 or more) of the share, and none behind those whose payloads surely
/// have more than `bytes` as text: nothing of it up to the part's end is left out. The caller need
/// not have locked the positions: nothing when one has moved on and the log behind it was deleted.
/// Reads what is committed now, whatever the isolation level. What it returns lives in the current
/// memory context; the tables stay open to the end of the transaction. Inside with_spi.
std::optional<LogPart> read_log(const LogFilter &filter, LoadedTicks &ticks, const LogShare &share,
                                int32 room, uint64 bytes = PG_UINT64_MAX);

/// All the messages between two positions that read_log() has returned, in the same order.
LogPart read_log_again(const LogFilter &filter, int16 partition, core::LogPosition from,
                       core::LogPosition until);

/// Whether a transaction of `xids` has published: the log has a row of it.
bool have_published(std::span<const uint64> xids);

/// When the first message was published that no tick sees, if it is among the first `rows_max` of
/// these: unread for every subscription. Nothing where the last tick was deleted meanwhile.
std::optional<TimestampTz> first_behind_ticks(const LogFilter &filter, int64 rows_max);

/// How many messages behind `from` are committed, whether a tick sees them or not, and when the
/// first of them was published. Leaves out those with the numbers `but_not`, which are sorted.
/// Nothing when the position, which need not be locked, has moved on and the log behind it was
/// deleted.
struct Backlog {
    int64 messages;
    TimestampTz oldest; ///< DT_NOEND: there is none
};
std::optional<Backlog> count_backlog(const LogFilter &filter, int16 partition,
                                     core::LogPosition from, std::span<const int64> but_not);

} // namespace stacksaga
