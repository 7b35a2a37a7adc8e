#include "src/outbox/delivery/delivery_part.hpp"

#include "core/outbox/batch_room.hpp"
#include "core/outbox/snapshot_window.hpp"

#include "src/outbox/delivery/delivery_fit.hpp"
#include "src/outbox/delivery/delivery_loss.hpp"
#include "src/outbox/log/log_tick.hpp"

namespace stacksaga {

namespace {

/// How many of the messages come before one that is stuck, or are enough for `bytes`.
struct Readable {
    size_t count;
    bool is_stuck;
};

/// Settles those that cannot be read, and reads no more than is needed.
Readable count_readable(const Subscription &s, std::span<Message> messages, uint64 bytes,
                        TimestampTz now) {
    uint64 read = 0;
    for (size_t i = 0; i < messages.size(); ++i) {
        if (settle_unfit(s, messages[i], now) == Fit::stuck)
            return {.count = i, .is_stuck = true};
        read += messages[i].payload_bytes;
        if (read > bytes)
            return {.count = i + 1, .is_stuck = false};
    }
    return {.count = messages.size(), .is_stuck = false};
}

/// Copies out what cannot be delivered of the messages that were just read from the log, and
/// returns the others.
std::span<Message> sift(const Subscription &s, std::span<Message> messages, TimestampTz now,
                        int32 &copied) {
    auto *dispositions =
        static_cast<Disposition *>(palloc(sizeof(Disposition) * (messages.size() + 1)));
    decide_dispositions(s, messages, now, {dispositions, messages.size()});
    size_t kept = 0;
    for (size_t i = 0; i < messages.size(); ++i) {
        if (dispositions[i] == Disposition::deliver)
            messages[kept++] = messages[i];
        if (dispositions[i] != Disposition::hold && dispositions[i] != Disposition::delay)
            continue;
        copy_out(s, messages[i], dispositions[i]);
        ++copied;
    }
    return messages.first(kept);
}

/// Whether all messages of the log before this one are before the end of `log` as well.
bool is_within(const LogPart &log, const Message &m) {
    return m.tick <= log.end.tick || (m.tick == log.window && m.number <= log.end.number);
}

/// The due retries whose turn has come: earlier messages of their key that are still in the log,
/// left by a batch that was lost, come first.
std::span<Message> within(const LogPart &log, std::span<Message> due) {
    return {due.begin(), std::partition(due.begin(), due.end(),
                                        [&](const Message &m) { return is_within(log, m); })};
}

/// Leaves out the last message where there is one more than room.
void cut_last(Part &part, int32 room) {
    if (part.retries.size() + part.log.size() <= static_cast<size_t>(room))
        return;
    auto last = std::max_element(part.retries.begin(), part.retries.end(), by_place);
    part.more = true;
    if (by_place(*last, part.log.back())) {
        part.log = {};
        part.end = part.position.at;
    } else {
        std::swap(*last, part.retries.back());
        part.retries = part.retries.first(part.retries.size() - 1);
    }
}

/// The part's messages in the order of their delivery.
std::span<const Message *> in_order(const Part &part) {
    const size_t size = part.retries.size() + part.log.size();
    auto **messages = static_cast<const Message **>(palloc(sizeof(Message *) * (size + 1)));
    size_t count = 0;
    for (const Message &m : part.retries)
        messages[count++] = &m;
    for (const Message &m : part.log)
        messages[count++] = &m;
    std::sort(messages, messages + count,
              [](const Message *a, const Message *b) { return by_place(*a, *b); });
    return {messages, count};
}

/// Leaves out the message and what is behind it.
void cut_before(Part &part, const Message &cut) {
    const Message first = cut; // which is among those that move
    const auto is_kept = [&](const Message &m) { return by_place(m, first); };
    const core::LogPosition before{.tick = first.is_retry() ? tick_before(first.tick)
                                                            : first.previous_tick,
                                   .number = first.number - 1};
    part.retries = {part.retries.begin(),
                    std::partition(part.retries.begin(), part.retries.end(), is_kept)};
    part.log = {part.log.begin(), std::find_if_not(part.log.begin(), part.log.end(), is_kept)};
    part.end = std::clamp(before, part.position.at, part.end);
    part.more = true;
}

/// A batch holds one message of an id, and ends behind the message that passes its bytes: the
/// second one of an id, or the next one, and what is behind it in its partition, comes with a later
/// batch.
void leave_out(Part &part, MessageIds &ids, BatchBytes &bytes) {
    for (const Message *m : in_order(part)) {
        if (bytes.are_passed() || !ids.add(m->id)) {
            cut_before(part, *m);
            return;
        }
        bytes.add({.value = m->payload, .text_bytes = m->payload_bytes});
        bytes.add({.value = m->headers});
    }
}

} // namespace

Part read_part(const Subscription &s, Position position, const LogPart &whole, int32 room,
               MessageIds &ids, BatchBytes &bytes, TimestampTz now) {
    const bool was_lost = position.batch_id != 0;
    end_lost_batch(s, position, now);
    Part part{.position = position, .end = position.at, .retries = {}, .log = {}, .more = false};
    const bool is_lone = position.room == core::lone_room && !s.handler;
    if (was_lost && is_lone) {
        // With the next call: other sessions of the consumer do not know before this commits.
        part.has_lone = true;
        move_position(s.id, part.position, position.at, now);
        return part;
    }
    const uint64 bytes_left = bytes.left();
    DueMessages due = due_messages(s, position.partition, room, bytes_left, now);
    const int32 left = std::max(1, room - static_cast<int32>(due.messages.size()));
    const LogPart log = whole.of_partition(position.partition, position.at, left);
    mark_in_doubt(position, log.messages);
    const Readable readable = count_readable(s, log.messages, bytes_left, now);
    part.log = sift(s, log.messages.first(readable.count), now, part.copied);
    if (part.copied > 0 && !due.messages.empty()) // those behind them are held now
        due = due_messages(s, position.partition, room, bytes_left, now);
    part.end = log.end;
    part.more = log.more || due.is_cut;
    part.retries = within(log, due.messages);
    cut_last(part, room);
    if (readable.count < log.messages.size()) {
        cut_before(part, log.messages[readable.count]);
        part.more = !readable.is_stuck; // that one not at once
    }
    leave_out(part, ids, bytes);
    const bool is_empty = part.log.empty() && part.retries.empty();
    if (is_empty && is_lone)
        part.position.room = 1; // nothing waits there any more
    if (is_empty && part.end != position.at &&
        (!log.messages.empty() || log.more || log.distance >= idle_distance))
        move_position(s.id, part.position, part.end, now);
    else if (is_empty && (was_lost || is_lone))
        move_position(s.id, part.position, position.at, now);
    return part;
}

bool MessageIds::add(const pg_uuid_t &id) {
    if (places_.empty()) {
        size_t size = 16;
        while (size < most_ * 2)
            size *= 2;
        places_ = {static_cast<Place *>(palloc0(sizeof(Place) * size)), size};
    }
    const uint64 hash = hash_bytes_extended(id.data, UUID_LEN, 0);
    for (size_t i = 0;; ++i) {
        Place &place = places_[(hash + i) & (places_.size() - 1)];
        if (place.is_taken && memcmp(place.id.data, id.data, UUID_LEN) == 0)
            return false;
        if (place.is_taken)
            continue;
        place = {.id = id, .is_taken = true};
        return true;
    }
}

} // namespace stacksaga
