#include "src/outbox/delivery/delivery_poll.hpp"

#include "core/outbox/batch_room.hpp"
#include "core/outbox/partition.hpp"
#include "core/outbox/snapshot_window.hpp"

#include "src/outbox/delivery/delivery_loss.hpp"
#include "src/outbox/delivery/delivery_owner.hpp"
#include "src/outbox/delivery/delivery_part.hpp"
#include "src/outbox/log/log_lock.hpp"
#include "src/outbox/log/log_tick.hpp"

namespace stacksaga {

namespace {

// Maximum number of messages that one read of a partition copies out; then it moves its position.
// Any number of messages of a blocked key may follow each other, and a transaction that is cut
// short would begin with all of them again.
constexpr int32 copied_max = 1000;

/// Partitions that are read together, as far as they are free.
struct Group {
    int16 first;
    std::span<core::LogPosition> from; ///< hints; LogShare::nowhere: the partition is not free

    core::LogPosition begin() const { return LogShare{first, from}.begin(); }
    bool is_free(size_t i) const { return from[i] != LogShare::nowhere; }
    void leave_out(size_t i) { from[i] = LogShare::nowhere; }
};

/// Gathers from group after group.
struct Gatherer {
    const Subscription &s;
    const NodeIdentity *owner;
    int32 room;
    int32 parts_left; ///< partitions that may still be taken
    int32 rotation;
    TimestampTz now;
    PartitionSet due;
    PartitionSet wanted;
    MessageIds ids;
    bool is_lone;            ///< one message, of the partitions that are wanted alone
    PartitionSet tried{};    ///< those that were chosen, and gave nothing
    bool are_locked = false; ///< the slots of those that are wanted
    LoadedTicks ticks{};
    BatchBytes bytes{};
    Gathering out{};
    size_t count = 0;
    size_t part_count = 0;

    int32 left() const { return room - static_cast<int32>(count); }
    bool is_full() { return left() == 0 || parts_left == 0 || bytes.are_passed(); }
    void gather(Group &group);

private:
    struct Round {
        bool has_given;   ///< messages
        bool has_changed; ///< a position has moved, or a partition is left out
        bool more;
        int64 copied;
    };
    Round gather_once(Group &group);
    bool owns(size_t partition);
    int32 room_for(const Position &p) const;
    std::optional<Part> take(Group &group, size_t i, const std::optional<LogPart> &whole);
    void add(const Part &part);
    PartitionSet candidates(const Group &group, const std::optional<LogPart> &log) const;
    bool narrow(const Group &group, PartitionSet &looked_at, std::optional<LogPart> &log);
};

/// Of the group's free partitions those in which there may be something to do.
PartitionSet Gatherer::candidates(const Group &group, const std::optional<LogPart> &log) const {
    // At this distance, or before this many unwanted messages, each position moves.
    const bool all =
        is_lone || !log || log->distance >= idle_distance || (log->messages.empty() && log->more);
    PartitionSet found{};
    for (size_t i = 0; i < group.from.size(); ++i) {
        const auto partition = static_cast<size_t>(group.first) + i;
        found[partition] = group.is_free(i) && (all || due[partition]);
    }
    if (log)
        for (const Message &m : log->messages)
            found[static_cast<size_t>(m.partition)] = true;
    return found;
}

/// Where more partitions have something than may be taken: leaves only as many, and reads the log
/// for them alone, so that their messages fill the batch.
bool Gatherer::narrow(const Group &group, PartitionSet &looked_at, std::optional<LogPart> &log) {
    const size_t size = group.from.size();
    if (!log || static_cast<size_t>(parts_left) >= size)
        return false;
    PartitionSet has_something{};
    for (const Message &m : log->messages)
        has_something[static_cast<size_t>(m.partition)] = true;
    PartitionSet chosen{};
    int32 chosen_count = 0;
    bool is_narrowed = false;
    auto *from = static_cast<core::LogPosition *>(palloc(sizeof(core::LogPosition) * size));
    std::fill(from, from + size, LogShare::nowhere);
    for (size_t turn = 0; turn < size; ++turn) {
        const size_t i = (turn + static_cast<size_t>(rotation)) % size;
        const auto partition = static_cast<size_t>(group.first) + i;
        if (!group.is_free(i) || !(has_something[partition] || due[partition]))
            continue;
        chosen[partition] = chosen_count < parts_left && !tried[partition];
        is_narrowed = is_narrowed || !chosen[partition];
        if (!chosen[partition])
            continue;
        ++chosen_count;
        from[i] = group.from[i];
    }
    if (!is_narrowed)
        return false;
    looked_at = chosen;
    if (chosen_count > 0 && log->more)
        log = read_log(s.filter, ticks, {.first = group.first, .from = {from, size}}, left(),
                       bytes.left());
    return true;
}

/// All slots are locked at once, where there is something to do at all.
bool Gatherer::owns(size_t partition) {
    if (owner != nullptr && !are_locked)
        wanted = lock_owned_partitions(*owner, s.partitions, wanted);
    are_locked = true;
    return wanted[partition];
}

/// How many messages a partition may add; 0: it waits for another batch. Handlers have no batches
/// that are lost: what ends their process is named (handler/crash_record.hpp).
int32 Gatherer::room_for(const Position &p) const {
    if (s.handler)
        return left();
    if (p.batch_id == 0 && p.room == core::lone_room && !is_lone)
        return 0; // since the hint was read
    const int32 most =
        p.batch_id != 0 ? core::room_after_loss(p.batch_total, core::Company::none) : p.room;
    return core::room_in_batch(most, static_cast<int32>(count), left());
}

/// A partition's part of the batch; nothing when another session has it, or when it waits for
/// another batch.
std::optional<Part> Gatherer::take(Group &group, size_t i, const std::optional<LogPart> &whole) {
    const auto partition = static_cast<int16>(group.first + static_cast<int>(i));
    // Lock, then read the position: the lock makes this session the partition's only reader until
    // its commit, and the position says from where to deliver. Without waiting: other partitions
    // may have messages that nobody reads.
    std::optional<Position> position = lock_position(s.id, partition, false);
    out.contended = out.contended || !position;
    const int32 part_room = !position || !position->is_free(now) ? 0 : room_for(*position);
    if (part_room == 0 || (!s.handler && waits_for_company(s, *position, now)))
        return std::nullopt;
    // The log was read from a hint without a lock. Where the locked position is the same, the
    // reading holds: nothing before a tick's snapshot changes any more.
    if (whole && position->at == group.from[i])
        return read_part(s, *position, *whole, part_room, ids, bytes, now);
    // The hint was old, and the log behind it may be gone.
    const std::optional<LogPart> own = read_log(
        s.filter, ticks, {.first = partition, .from = {&position->at, 1}}, left(), bytes.left());
    if (!own)
        elog(ERROR, "tick " INT64_FORMAT " of the outbox is gone", position->at.tick);
    return read_part(s, *position, *own, part_room, ids, bytes, now);
}

void Gatherer::add(const Part &part) {
    out.copied += part.copied;
    out.has_lone = out.has_lone || part.has_lone;
    if (part.retries.empty() && part.log.empty())
        return;
    Message *begin = out.messages.data();
    Message *end = std::copy(part.retries.begin(), part.retries.end(), begin + count);
    end = std::copy(part.log.begin(), part.log.end(), end);
    count = static_cast<size_t>(end - begin);
    out.parts[part_count++] = {.position = part.position,
                               .end = part.end,
                               .from_log = static_cast<int32>(part.log.size())};
    --parts_left;
    if (!s.handler && part.position.room != core::any_room)
        room = std::clamp(part.position.room, static_cast<int32>(count), room);
}

Gatherer::Round Gatherer::gather_once(Group &group) {
    CHECK_FOR_INTERRUPTS();
    // Before any lock: most often nothing is there, and a look that finds nothing must not keep
    // another session from the partitions.
    std::optional<LogPart> log =
        read_log(s.filter, ticks, {.first = group.first, .from = group.from}, left(), bytes.left());
    PartitionSet looked_at = candidates(group, log);
    const bool is_narrowed = narrow(group, looked_at, log);
    Round round{.has_given = false, .has_changed = false, .more = log && log->more, .copied = 0};
    const size_t size = group.from.size();
    for (size_t turn = 0; turn < size; ++turn) {
        const size_t i = (turn + static_cast<size_t>(rotation)) % size;
        if (!looked_at[static_cast<size_t>(group.first) + i])
            continue;
        if (is_full()) {
            round.more = true;
            break;
        }
        const core::LogPosition before = group.from[i];
        const std::optional<Part> part =
            owns(static_cast<size_t>(group.first) + i) ? take(group, i, log) : std::nullopt;
        if (!part) {
            group.leave_out(i);
            round.has_changed = true;
            continue;
        }
        add(*part);
        group.from[i] = part->position.at;
        round.has_given = round.has_given || !part->retries.empty() || !part->log.empty();
        round.has_changed = round.has_changed || group.from[i] != before;
        round.more = round.more || part->more;
        round.copied += part->copied;
    }
    if (!is_narrowed || round.has_given)
        return round;
    // Others of the group may give something.
    for (size_t i = 0; i < size; ++i) {
        const auto partition = static_cast<size_t>(group.first) + i;
        round.has_changed = round.has_changed || looked_at[partition];
        tried[partition] = tried[partition] || looked_at[partition];
    }
    return round;
}

/// Reads on until there is something to deliver, nothing left, or enough copied out.
void Gatherer::gather(Group &group) {
    int64 copied = 0;
    for (;;) {
        const Round round = gather_once(group);
        copied += round.copied;
        const bool is_empty = group.begin() == LogShare::nowhere;
        if (round.has_given || !round.has_changed || is_empty || copied >= copied_max) {
            out.more = out.more || (round.more && !is_empty);
            return;
        }
    }
}

/// The groups with a free partition: the one that is the furthest behind comes first, of equals the
/// one at `rotation`.
std::span<Group> groups_of(const Subscription &s, const PartitionSet &wanted, Positions hints,
                           int32 rotation, TimestampTz now) {
    const auto size = static_cast<size_t>(core::partitions_together(s.partitions));
    const size_t all = hints.size() / size;
    auto *from = static_cast<core::LogPosition *>(palloc(sizeof(core::LogPosition) * hints.size()));
    for (size_t i = 0; i < hints.size(); ++i)
        from[i] = wanted[i] && hints[i].is_free(now) ? hints[i].at : LogShare::nowhere;
    auto *groups = static_cast<Group *>(palloc(sizeof(Group) * all));
    size_t count = 0;
    for (size_t turn = 0; turn < all; ++turn) {
        const size_t first = (turn + static_cast<size_t>(rotation)) % all * size;
        const Group group{.first = static_cast<int16>(first), .from = {from + first, size}};
        if (group.begin() == LogShare::nowhere)
            continue;
        // Sixteen elements at most: an insertion sort keeps equals in their order, without memory.
        size_t place = count++;
        for (; place > 0 && group.begin() < groups[place - 1].begin(); --place)
            groups[place] = groups[place - 1];
        groups[place] = group;
    }
    return {groups, count};
}

/// What the consumer has, and what waits for one that has nothing.
struct Held {
    int32 partitions = 0;
    bool has_lone = false;
    bool waits = false;
    PartitionSet waiting{}; ///< partitions with a message that is to be alone

    bool operator==(const Held &) const = default;
};

Held held_by(const ConsumerShare &share, Positions hints, TimestampTz now) {
    Held held{};
    if (share.consumer == 0)
        return held;
    for (const Position &p : hints) {
        const bool is_lone = p.room == core::lone_room;
        if (p.is_leased(now) && p.consumer == share.consumer) {
            ++held.partitions;
            held.has_lone = held.has_lone || is_lone;
        }
        if (p.batch_id == 0 && is_lone && p.is_free(now)) {
            held.waits = true;
            held.waiting[static_cast<size_t>(p.partition)] = true;
        }
    }
    return held;
}

/// One session at a time hands out messages that are to be alone, so that no consumer gets two.
/// False: another one does.
bool lock_waiting(const Subscription &s, const PartitionSet &waiting) {
    for (size_t i = 0; i < waiting.size(); ++i)
        if (waiting[i] && !lock_partition(s.id, static_cast<int16>(i), false))
            return false;
    return true;
}

} // namespace

Gathering gather(const Subscription &s, const PartitionSet &wanted, const NodeIdentity *owner,
                 int32 room, int32 rotation, TimestampTz now, ConsumerShare share) {
    if (s.is_paused(now))
        return {};
    std::optional<Positions> hints = read_positions(s.id, s.partitions);
    if (!hints) // it has been dropped meanwhile
        return {};
    const Held held = held_by(share, *hints, now);
    const core::Offer offer = core::offer_to(held.partitions > 0, held.has_lone, held.waits);
    if (offer == core::Offer::nothing || held.partitions >= share.partitions)
        return {};
    const bool is_lone = offer == core::Offer::lone;
    if (is_lone) {
        bool is_locked = lock_waiting(s, held.waiting);
        hints = read_positions(s.id, s.partitions); // newer than the locks
        is_locked = is_locked && hints && held_by(share, *hints, now) == held;
        if (!is_locked)
            return {.parts = {},
                    .messages = {},
                    .more = false,
                    .copied = 0,
                    .contended = true,
                    .has_lone = false};
    }
    const PartitionSet &offered = is_lone ? held.waiting : wanted;
    Gatherer gatherer{.s = s,
                      .owner = owner,
                      .room = is_lone ? 1 : room,
                      .parts_left =
                          is_lone ? core::partitions_max : share.partitions - held.partitions,
                      .rotation = rotation,
                      .now = now,
                      .due = due_partitions(s, now),
                      .wanted = offered,
                      .ids = MessageIds(static_cast<size_t>(room)),
                      .is_lone = is_lone};
    Gathering &out = gatherer.out;
    out.parts = {static_cast<GatheredPart *>(palloc(sizeof(GatheredPart) * hints->size())),
                 hints->size()};
    out.messages = {static_cast<Message *>(palloc(sizeof(Message) * static_cast<size_t>(room))),
                    static_cast<size_t>(room)};
    for (Group &group : groups_of(s, offered, *hints, rotation, now)) {
        if (gatherer.is_full()) {
            out.more = true;
            break;
        }
        gatherer.gather(group);
    }
    out.parts = out.parts.first(gatherer.part_count);
    out.messages = out.messages.first(gatherer.count);
    std::sort(out.messages.begin(), out.messages.end(), by_place);
    return out;
}

PartitionSet offered_to(const ConsumerShare &share, Positions hints, TimestampTz now) {
    const Held held = held_by(share, hints, now);
    const core::Offer offer = core::offer_to(held.partitions > 0, held.has_lone, held.waits);
    if (offer == core::Offer::nothing || held.partitions >= share.partitions)
        return {};
    PartitionSet all{};
    all.fill(true);
    return offer == core::Offer::lone ? held.waiting : all;
}

std::span<Message> gather_fallbacks(const Subscription &s, const PartitionSet &wanted,
                                    const NodeIdentity *owner, int32 limit, TimestampTz now) {
    // Without a fallback this would read through all that is due.
    if (!s.fallback || s.is_paused(now))
        return {};
    auto *messages = static_cast<Message *>(palloc(sizeof(Message) * static_cast<size_t>(limit)));
    size_t count = 0;
    PartitionSet due = due_partitions(s, now);
    for (size_t i = 0; i < due.size(); ++i)
        due[i] = due[i] && wanted[i] && has_due_fallback(s, static_cast<int16>(i), now);
    if (owner != nullptr)
        due = lock_owned_partitions(*owner, s.partitions, due);
    for (int16 partition = 0; partition < s.partitions; ++partition) {
        const int32 room = limit - static_cast<int32>(count);
        if (!due[static_cast<size_t>(partition)] || room == 0)
            continue;
        std::optional<Position> position = lock_position(s.id, partition, false);
        // The consumer of the batch in which it failed leaves out the later messages of its key.
        if (!position || position->is_leased(now))
            continue;
        if (position->batch_id != 0) {
            end_lost_batch(s, *position, now);
            move_position(s.id, *position, position->at, now);
        }
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
