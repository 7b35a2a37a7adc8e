#include "src/outbox/delivery_poll.hpp"

#include "src/outbox/log_lock.hpp"
#include "src/outbox/log_tick.hpp"

namespace stacksaga {

namespace {

// A position is moved over what nobody wants when so much of the log lies behind it, or more ticks
// than are read at once; until then reading it again costs less than writing.
constexpr int64 idle_distance = 2000;
// After so many moved aside a read of a partition ends, with its position moved: of a key that is
// blocked any number may follow each other, and a transaction cut short would begin with all of
// them again.
constexpr int32 aside_max = 1000;
// From this delivery on the batch is halved with each one: a message that kills its consumer ends
// up alone, and runs out of attempts.
constexpr int32 deliveries_before_halving = 3;

/// What one partition gives.
struct Part {
    Position position;
    core::LogPosition end;
    std::span<Message> aside;
    std::span<Message> log;
    bool more;
    int32 moved = 0; ///< messages of the log moved aside
};

int32 log_room(const Position &p, int32 room) {
    if (p.batch_id == 0 || p.deliveries < deliveries_before_halving)
        return room;
    const int halvings = std::min(p.deliveries - deliveries_before_halving + 1, 30);
    return std::clamp(p.batch_size >> halvings, 1, room);
}

/// Sorts what was just read from the log into what is delivered, returned, and what is aside now.
std::span<Message> sift(const Subscription &s, std::span<Message> messages, TimestampTz now,
                        int32 &moved) {
    auto *fates = static_cast<LogFate *>(palloc(sizeof(LogFate) * (messages.size() + 1)));
    decide_fates(s, messages, now, {fates, messages.size()});
    size_t kept = 0;
    for (size_t i = 0; i < messages.size(); ++i) {
        if (fates[i] == LogFate::deliver)
            messages[kept++] = messages[i];
        if (fates[i] != LogFate::hold && fates[i] != LogFate::delay)
            continue;
        move_aside(s, messages[i], fates[i], now);
        ++moved;
    }
    return messages.first(kept);
}

/// Messages behind the batch that was lost were in none: they may be the first of the log when all
/// of that batch failed by themselves, and their deliveries count from one.
void count_deliveries_anew(Part &part) {
    Position &p = part.position;
    if (p.batch_id != 0 && !part.log.empty() && p.batch_end < part.log[0].end())
        p.deliveries = 0;
}

/// The only message of a batch whose consumers have died at it too often fails.
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

/// Whether all that comes before the message in the log is before the end of `log` as well.
bool is_within(const LogPart &log, const Message &m) {
    return m.tick <= log.end.tick || (m.tick == log.window && m.number <= log.end.number);
}

/// Those that were aside and whose turn has come: of a key that has messages in the log before
/// them, left by a batch that was lost, these come first.
std::span<Message> within(const LogPart &log, std::span<Message> due) {
    return {due.begin(), std::partition(due.begin(), due.end(),
                                        [&](const Message &m) { return is_within(log, m); })};
}

/// Leaves out the last one, where there is one more than room.
void cut_last(Part &part, int32 room) {
    if (part.aside.size() + part.log.size() <= static_cast<size_t>(room))
        return;
    auto last = std::max_element(part.aside.begin(), part.aside.end(), by_place);
    part.more = true;
    if (by_place(*last, part.log.back())) {
        part.log = {};
        part.end = part.position.at;
    } else {
        std::swap(*last, part.aside.back());
        part.aside = part.aside.first(part.aside.size() - 1);
    }
}

/// Reads on until there is something to deliver, nothing left, or enough moved aside. At least one
/// message of the log is looked at, to know how far those go that were aside.
Part read_part(const Subscription &s, LoadedTicks &ticks, Position position, int32 room,
               TimestampTz now) {
    Part part{.position = position, .end = position.at, .aside = {}, .log = {}, .more = false};
    DueMessages due = due_messages(s, position.partition, room, now);
    bool have_changed = due.have_changed;
    const int32 left = std::max(1, room - static_cast<int32>(due.messages.size()));
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        LogPart log =
            read_log(s.filter, ticks, position.partition, part.end, log_room(part.position, left));
        const bool moved = !log.messages.empty();
        const int32 moved_before = part.moved;
        part.log = sift(s, log.messages, now, part.moved);
        count_deliveries_anew(part);
        const bool given_up = give_up_on_first(s, part, now);
        if (given_up)
            part.log = {};
        if ((part.moved > moved_before || given_up) && !due.messages.empty()) {
            due =
                due_messages(s, position.partition, room, now); // what is behind those has to wait
            have_changed = have_changed || due.have_changed;
        }
        part.end = log.end;
        part.more = log.more || due.messages.size() == static_cast<size_t>(room);
        part.aside = within(log, due.messages);
        const bool is_empty = part.log.empty() && part.aside.empty();
        if (is_empty && (moved || given_up || log.more || log.distance >= idle_distance))
            move_position(s.id, part.position, part.end, now);
        if (!log.more || !is_empty || part.moved >= aside_max) {
            // Nobody may acknowledge what was given up on, or waits again.
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
        return {.parts = {}, .messages = {}, .more = false, .moved = 0};
    auto *parts = static_cast<GatheredPart *>(palloc(sizeof(GatheredPart) * log_partitions));
    auto *messages = static_cast<Message *>(palloc(sizeof(Message) * static_cast<size_t>(room)));
    LoadedTicks ticks;
    size_t count = 0, part_count = 0;
    bool more = false;
    int64 moved = 0;
    for (int16 partition : order_of(*hints, rotation)) {
        const auto index = static_cast<size_t>(partition);
        if (!wanted[index] || (*hints)[index].is_leased(now))
            continue;
        if (count == static_cast<size_t>(room)) {
            more = true;
            break;
        }
        std::optional<Position> position = lock_position(s.id, partition, false);
        if (!position || position->is_leased(now))
            continue;
        Part part = read_part(s, ticks, *position, room - static_cast<int32>(count), now);
        more = more || part.more;
        moved += part.moved;
        if (part.aside.empty() && part.log.empty())
            continue;
        Message *end = std::copy(part.aside.begin(), part.aside.end(), messages + count);
        end = std::copy(part.log.begin(), part.log.end(), end);
        count = static_cast<size_t>(end - messages);
        parts[part_count++] = {.position = part.position,
                               .end = part.end,
                               .from_log = static_cast<int32>(part.log.size())};
    }
    std::sort(messages, messages + count, by_place);
    return {
        .parts = {parts, part_count}, .messages = {messages, count}, .more = more, .moved = moved};
}

std::span<Message> gather_fallbacks(const Subscription &s,
                                    std::span<const bool, log_partitions> wanted, int32 limit,
                                    TimestampTz now) {
    if (!s.fallback) // or all that is due would be looked through
        return {};
    auto *messages = static_cast<Message *>(palloc(sizeof(Message) * static_cast<size_t>(limit)));
    size_t count = 0;
    for (int16 partition = 0; partition < log_partitions; ++partition) {
        const int32 room = limit - static_cast<int32>(count);
        if (!wanted[static_cast<size_t>(partition)] || room == 0 ||
            !has_due_fallback(s, partition, now))
            continue;
        std::optional<Position> position = lock_position(s.id, partition, false);
        // Who holds the batch in which it failed has left out what comes behind it.
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
    const int64 previous = m.is_aside ? tick_before(m.tick) : m.previous_tick;
    return std::max(at, core::LogPosition{.tick = previous, .number = m.number});
}

} // namespace stacksaga
