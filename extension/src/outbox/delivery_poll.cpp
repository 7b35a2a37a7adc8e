#include "src/outbox/delivery_poll.hpp"

#include "src/outbox/log_lock.hpp"
#include "src/outbox/log_tick.hpp"

namespace stacksaga {

namespace {

// A position moves over messages that the subscription does not want when so much of the log lies
// behind it, or more ticks than are read at once. Until then reading them again costs less than
// writing.
constexpr int64 idle_distance = 2000;
// After so many copied out a read of a partition ends and moves its position. Any number of
// messages of a blocked key may follow each other, and a transaction that is cut short would begin
// with all of them again.
constexpr int32 copied_max = 1000;
// From this delivery on each one halves the batch: a message that kills its consumer is alone in
// the end, and runs out of attempts.
constexpr int32 deliveries_before_halving = 3;

/// What one partition gives.
struct Part {
    Position position;
    core::LogPosition end;
    std::span<Message> retries;
    std::span<Message> log;
    bool more;
    int32 copied = 0; ///< messages of the log that were copied out
};

int32 log_room(const Position &p, int32 room) {
    if (p.batch_id == 0 || p.deliveries < deliveries_before_halving)
        return room;
    const int halvings = std::min(p.deliveries - deliveries_before_halving + 1, 30);
    return std::clamp(p.batch_size >> halvings, 1, room);
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

/// Messages behind the batch that was lost were in no batch: they may be the first of the log when
/// each message of that batch failed, and their deliveries count from one.
void count_deliveries_anew(Part &part) {
    Position &p = part.position;
    if (p.batch_id != 0 && !part.log.empty() && p.batch_end < part.log[0].end())
        p.deliveries = 0;
}

/// Fails the only message of a batch whose consumers have died too often.
bool give_up_on_first(const Subscription &s, Part &part, TimestampTz now) {
    Position &p = part.position;
    if (p.batch_id == 0 || p.batch_size != 1 || part.log.size() != 1 ||
        core::may_retry(p.deliveries, s.retry.policy))
        return false;
    Message m = part.log[0];
    m.attempt = p.deliveries;
    fail_message(s, m,
                 {.failure_class = core::FailureClass::non_retryable,
                  .error = "its consumers have not answered before their leases ran out"},
                 now);
    return true;
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

/// Reads on until there is something to deliver, nothing left, or enough copied out. It looks at
/// one message of the log at least, to know which retries come before the log.
Part read_part(const Subscription &s, LoadedTicks &ticks, Position position, int32 room,
               TimestampTz now) {
    Part part{.position = position, .end = position.at, .retries = {}, .log = {}, .more = false};
    DueMessages due = due_messages(s, position.partition, room, now);
    bool have_changed = due.have_changed;
    const int32 left = std::max(1, room - static_cast<int32>(due.messages.size()));
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        LogPart log =
            read_log(s.filter, ticks, position.partition, part.end, log_room(part.position, left));
        const bool has_read = !log.messages.empty();
        const int32 copied_before = part.copied;
        part.log = sift(s, log.messages, now, part.copied);
        count_deliveries_anew(part);
        const bool given_up = give_up_on_first(s, part, now);
        if (given_up)
            part.log = {};
        if ((part.copied > copied_before || given_up) && !due.messages.empty()) {
            due = due_messages(s, position.partition, room, now); // those behind them are held now
            have_changed = have_changed || due.have_changed;
        }
        part.end = log.end;
        part.more = log.more || due.messages.size() == static_cast<size_t>(room);
        part.retries = within(log, due.messages);
        const bool is_empty = part.log.empty() && part.retries.empty();
        if (is_empty && (has_read || given_up || log.more || log.distance >= idle_distance))
            move_position(s.id, part.position, part.end, now);
        if (!log.more || !is_empty || part.copied >= copied_max) {
            // Its batch is over: some of it was given up on or is held now.
            if (have_changed && part.position.batch_id != 0)
                move_position(s.id, part.position, part.position.at, now);
            cut_last(part, room);
            return part;
        }
    }
}

/// The partitions in the order in which they are looked at.
std::array<int16, log_partitions> order_of(const Positions &positions, int32 rotation) {
    std::array<int16, log_partitions> order{};
    for (int32 i = 0; i < log_partitions; ++i)
        order[static_cast<size_t>(i)] = static_cast<int16>((i + rotation) % log_partitions);
    // Sixteen elements: an insertion sort keeps equals in their order, and needs no memory.
    for (size_t i = 1; i < order.size(); ++i)
        for (size_t j = i; j > 0 && positions[static_cast<size_t>(order[j])].at <
                                        positions[static_cast<size_t>(order[j - 1])].at;
             --j)
            std::swap(order[j], order[j - 1]);
    return order;
}

} // namespace

Gathering gather(const Subscription &s, std::span<const bool, log_partitions> wanted, int32 room,
                 int32 rotation, TimestampTz now) {
    const std::optional<Positions> hints = read_positions(s.id);
    if (!hints) // it has been dropped meanwhile
        return {.parts = {}, .messages = {}, .more = false, .copied = 0, .contended = false};
    auto *parts = static_cast<GatheredPart *>(palloc(sizeof(GatheredPart) * log_partitions));
    auto *messages = static_cast<Message *>(palloc(sizeof(Message) * static_cast<size_t>(room)));
    LoadedTicks ticks;
    size_t count = 0, part_count = 0;
    bool more = false, contended = false;
    int64 copied = 0;
    for (int16 partition : order_of(*hints, rotation)) {
        const auto index = static_cast<size_t>(partition);
        if (!wanted[index] || (*hints)[index].is_leased(now))
            continue;
        if (count == static_cast<size_t>(room)) {
            more = true;
            break;
        }
        std::optional<Position> position = lock_position(s.id, partition, false);
        contended = contended || !position;
        if (!position || position->is_leased(now))
            continue;
        Part part = read_part(s, ticks, *position, room - static_cast<int32>(count), now);
        more = more || part.more;
        copied += part.copied;
        if (part.retries.empty() && part.log.empty())
            continue;
        Message *end = std::copy(part.retries.begin(), part.retries.end(), messages + count);
        end = std::copy(part.log.begin(), part.log.end(), end);
        count = static_cast<size_t>(end - messages);
        parts[part_count++] = {.position = part.position,
                               .end = part.end,
                               .from_log = static_cast<int32>(part.log.size())};
    }
    std::sort(messages, messages + count, by_place);
    return {.parts = {parts, part_count},
            .messages = {messages, count},
            .more = more,
            .copied = copied,
            .contended = contended};
}

std::span<Message> gather_fallbacks(const Subscription &s,
                                    std::span<const bool, log_partitions> wanted, int32 limit,
                                    TimestampTz now) {
    if (!s.fallback) // else this would read through all that is due
        return {};
    auto *messages = static_cast<Message *>(palloc(sizeof(Message) * static_cast<size_t>(limit)));
    size_t count = 0;
    for (int16 partition = 0; partition < log_partitions; ++partition) {
        const int32 room = limit - static_cast<int32>(count);
        if (!wanted[static_cast<size_t>(partition)] || room == 0 ||
            !has_due_fallback(s, partition, now))
            continue;
        std::optional<Position> position = lock_position(s.id, partition, false);
        // The consumer of the batch in which it failed leaves out the later messages of its key.
        if (!position || position->is_leased(now))
            continue;
        if (position->batch_id != 0)
            move_position(s.id, *position, position->at, now);
        for (const Message &m : due_fallbacks(s, partition, room, now))
            if (position_behind(m, position->at) == position->at)
                messages[count++] = m;
    }
    return {messages, count};
}

core::LogPosition position_behind(const Message &m, core::LogPosition at) {
    if (m.tick <= at.tick)
        return at;
    const int64 previous = m.is_retry() ? tick_before(m.tick) : m.previous_tick;
    return std::max(at, core::LogPosition{.tick = previous, .number = m.number});
}

} // namespace stacksaga
