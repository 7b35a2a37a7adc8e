#include "src/outbox/log/log_generation.hpp"

#include "core/outbox/partition.hpp"
#include "core/outbox/snapshot_window.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/settings.hpp"
#include "pg/statement/attempt.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/kept_rows.hpp"
#include "src/outbox/delivery/delivery_loss.hpp"
#include "src/outbox/delivery/delivery_poll.hpp"
#include "src/outbox/log/log_append.hpp"
#include "src/outbox/log/log_forget.hpp"
#include "src/outbox/log/log_lock.hpp"
#include "src/outbox/log/log_table.hpp"
#include "src/outbox/log/log_tick.hpp"

namespace stacksaga {

namespace {

// A generation is kept until all subscriptions have read it, so the log is at least two of these
// long.
constexpr int64 generation_age_us = USECS_PER_HOUR;
constexpr int64 generation_pages = 32768; // 256 MB
constexpr int others_timeout_ms = 50;     // longest wait for those who are in a generation
// Readers that come meanwhile queue behind the lock, so it waits only for those that came just now.
constexpr int lock_timeout_ms = 5;
constexpr int32 copied_max = 1000; // messages copied out at once

constinit pg::Statement begin_generation{
    "SELECT pg_catalog.setval('stacksaga.outbox_generation_seq', $1)"};
// The first rows of an append-only table are the oldest.
constinit std::array<pg::Statement, generations> oldest_of{
    pg::Statement{"SELECT published_at FROM stacksaga.outbox_message_0 LIMIT 1"},
    pg::Statement{"SELECT published_at FROM stacksaga.outbox_message_1 LIMIT 1"},
    pg::Statement{"SELECT published_at FROM stacksaga.outbox_message_2 LIMIT 1"}};
#define LAST_OF(generation)                                                                        \
    "SELECT max(m.number) AS number, max(m.published_at) AS youngest"                              \
    "  FROM generate_series(0, $1 - 1) AS n(stripe), LATERAL ("                                    \
    "       SELECT number, published_at FROM stacksaga.outbox_message_" #generation                \
    "        WHERE stripe = n.stripe::smallint ORDER BY number DESC LIMIT 1) AS m"
enum class LastColumn : uint8_t { number, youngest };
using SelectLast = pg::Select<LastColumn>;
constinit std::array<SelectLast, generations> last_of{
    SelectLast{LAST_OF(0)}, SelectLast{LAST_OF(1)}, SelectLast{LAST_OF(2)}};
constinit std::array<pg::Statement, generations> lock_of{
    pg::Statement{"LOCK TABLE stacksaga.outbox_message_0 IN ACCESS EXCLUSIVE MODE"},
    pg::Statement{"LOCK TABLE stacksaga.outbox_message_1 IN ACCESS EXCLUSIVE MODE"},
    pg::Statement{"LOCK TABLE stacksaga.outbox_message_2 IN ACCESS EXCLUSIVE MODE"}};
constinit std::array<pg::Statement, generations> empty_of{
    pg::Statement{"TRUNCATE stacksaga.outbox_message_0"},
    pg::Statement{"TRUNCATE stacksaga.outbox_message_1"},
    pg::Statement{"TRUNCATE stacksaga.outbox_message_2"}};
constinit pg::Statement all_subscriptions{
    "SELECT subscription_id FROM stacksaga.subscription ORDER BY subscription_id"};
// Of the latest positions of all subscriptions and partitions the one that is the furthest behind.
enum class LeastColumn : uint8_t { tick, positions };
constinit pg::Select<LeastColumn> least_tick{
    "SELECT min(p.tick) AS tick, count(*) AS positions"
    "  FROM stacksaga.subscription AS s, generate_series(0, s.partitions - 1) AS n(partition), LATERAL ("
    "       SELECT l.tick FROM stacksaga.subscription_position AS l"
    "        WHERE l.subscription_id = s.subscription_id AND l.partition = n.partition::smallint"
    "        ORDER BY l.version DESC LIMIT 1) AS p"};

/// The subscription position that is the furthest behind.
struct Progress {
    int64 tick;
    bool has_subscriptions;
};

Progress progress() {
    const auto rows = least_tick.run();
    return {.tick = rows.optional_int8(0, LeastColumn::tick).value_or(0),
            .has_subscriptions = rows.int8(0, LeastColumn::positions) > 0};
}

TimestampTz retention_begin(TimestampTz now) {
    return pg::time_plus(now, -static_cast<int64>(pg::settings.outbox_retention) * USECS_PER_SEC);
}

/// Whether the generation holds messages and no subscription needs them. Only a lock that keeps
/// writers out makes this certain: messages that are not committed do not count.
bool is_read(size_t generation, TimestampTz now) {
    const auto last = last_of[generation].run(pg::param(core::log_stripes));
    const std::optional<int64> number = last.optional_int8(0, LastColumn::number);
    if (!number)
        return false;
    const TimestampTz youngest = last.time(0, LastColumn::youngest);
    const Progress read = progress();
    if (!read.has_subscriptions)
        return youngest < retention_begin(now);
    if (read.tick == 0)
        return false;
    // Messages that the tick does not see have a number above `before`, or their transaction was
    // running.
    const core::Tick tick = load_ticks(read.tick)[0];
    return *number <= tick.before && !have_published(tick.snapshot.running);
}

size_t generation_filled(int64 count) {
    return static_cast<size_t>(count % generations);
}

bool is_empty(size_t generation) {
    return oldest_of[generation].run().empty();
}

/// Begins a new generation where the next table is empty and this one is full enough.
void turn_generation(TimestampTz now, bool at_once) {
    const int64 count = last_value_of(log_sequences().generation);
    const size_t current = generation_filled(count);
    pg::Rows oldest = oldest_of[current].run();
    if (oldest.empty() || !is_empty(generation_filled(count + 1)))
        return;
    Relation table = log_tables[current].open(AccessShareLock);
    const bool is_large = RelationGetNumberOfBlocks(table) >= generation_pages;
    table_close(table, NoLock);
    if (at_once || is_large || oldest.time(0) < now - generation_age_us) {
        begin_generation.run(pg::param(count + 1));
        CRASH_POINT("generation: the next one begun");
        forget_generation();
    }
}

/// Those that nobody who was in them is in any longer.
using FreeGenerations = std::array<bool, generations>;

bool becomes_free(size_t generation) {
    Relation table = log_tables[generation].open(AccessShareLock);
    const Oid id = RelationGetRelid(table);
    table_close(table, NoLock);
    return wait_for_holders(id, others_timeout_ms);
}

/// Waits for those who are in a generation that can be truncated, before this transaction has
/// locked anything that others need: a session that waits for the table itself holds up all
/// readers. `is_wanted(generation)`: whether it may be. nullopt: another session does so.
template <class F> std::optional<FreeGenerations> wait_for_others(bool at_once, F &&is_wanted) {
    if (!lock_next_maintenance())
        return std::nullopt;
    const size_t current = generation_filled(last_value_of(log_sequences().generation));
    FreeGenerations free{};
    for (size_t generation = 0; generation < generations; ++generation)
        free[generation] =
            (at_once || generation != current) && is_wanted(generation) && becomes_free(generation);
    return free;
}

void empty_generation(size_t generation, TimestampTz now) {
    pg::attempt(lock_timeout_ms, [&] {
        lock_of[generation].run();
        CRASH_POINT("generation: locked");
        // A transaction may have chosen it before the next one began, and committed since.
        if (is_read(generation, now))
            empty_of[generation].run();
    });
}

/// Truncates those generations that are not being filled and that no subscription needs.
void empty_generations(TimestampTz now, const FreeGenerations &free) {
    const size_t current = generation_filled(last_value_of(log_sequences().generation));
    for (size_t generation = 0; generation < generations; ++generation) {
        const char *table = psprintf("outbox_message_%zu", generation);
        if (generation == current || !free[generation] || !is_read(generation, now) ||
            is_kept(table, "all of it", now))
            continue;
        const char *error = nullptr;
        if (attempt_removal(error, [&] { empty_generation(generation, now); }))
            forget_kept_rows(table, now);
        else
            keep_row(table, "all of it", error);
    }
}

/// Where a position may move without its reader: over messages that the subscription does not want,
/// and over those that it has not read for so long that the log cannot keep them.
struct Move {
    Position from;
    core::LogPosition to;
    std::span<Message> expired;
    bool more; ///< there are more of them behind `to`
};

std::optional<Move> find_move(const Position &from, const LogPart &part, TimestampTz now) {
    size_t old = 0;
    while (old < part.messages.size() && part.messages[old].published_at < retention_begin(now))
        ++old;
    const bool is_all = old == part.messages.size();
    const core::LogPosition to = is_all    ? part.end
                                 : old > 0 ? part.messages[old - 1].end()
                                           : from.at;
    if (to == from.at)
        return std::nullopt;
    return Move{
        .from = from, .to = to, .expired = part.messages.first(old), .more = is_all && part.more};
}

/// Adds the moves of partitions that are read together. Where the log is gone their readers are
/// ahead.
void find_moves(const Subscription &s, LoadedTicks &ticks, std::span<const Position> positions,
                std::span<std::optional<Move>> moves, TimestampTz now) {
    auto *from =
        static_cast<core::LogPosition *>(palloc(sizeof(core::LogPosition) * positions.size()));
    for (size_t i = 0; i < positions.size(); ++i)
        from[i] = positions[i].is_leased(now) ? LogShare::nowhere : positions[i].at;
    const LogShare share{.first = positions[0].partition, .from = {from, positions.size()}};
    if (share.begin() == LogShare::nowhere)
        return;
    const std::optional<LogPart> log = read_log(s.filter, ticks, share, copied_max);
    for (size_t i = 0; log && i < positions.size(); ++i)
        if (from[i] != LogShare::nowhere)
            moves[i] = find_move(
                positions[i], log->of_partition(positions[i].partition, from[i], copied_max), now);
}

/// Moves the position unless a reader has been there since. Returns whether there is more to do.
bool carry_out(const Subscription &s, const Move &move, TimestampTz now) {
    std::optional<Position> position = lock_position(s.id, move.from.partition, false);
    if (!position || position->version != move.from.version || position->is_leased(now))
        return false;
    // A batch whose lease ran out may still be acknowledged, unless its messages were given to
    // others or copied out; a batch of retries alone has none in the log.
    const bool is_carried = position->batch_id != 0 && position->batch_size == 0;
    if (is_carried)
        doubt_batch(s, *position);
    else
        end_lost_batch(s, *position, now);
    mark_in_doubt(*position, move.expired);
    copy_out_unhandled(s, move.expired, "it was not read before stacksaga.outbox_retention passed",
                       now);
    if (is_carried)
        carry_position(s.id, *position, move.to, now);
    else
        move_position(s.id, *position, std::max(position->at, move.to), now);
    return move.more;
}

bool maintain_free(const FreeGenerations &free, bool at_once) {
    if (!lock_maintenance())
        return false;
    const TimestampTz now = pg::clock_now();
    turn_generation(now, at_once);
    empty_generations(now, free);
    CRASH_POINT("generation: truncated");
    const Progress read = progress();
    const int64 least = read.has_subscriptions ? read.tick : last_tick();
    return forget_log(least, retention_begin(now), at_once);
}

} // namespace

std::span<const int32> list_subscriptions() {
    pg::Rows rows = all_subscriptions.run();
    auto *ids = static_cast<int32 *>(palloc(sizeof(int32) * (rows.count() + 1)));
    for (uint64 row = 0; row < rows.count(); ++row)
        ids[row] = rows.int4(row);
    return {ids, static_cast<size_t>(rows.count())};
}

bool move_idle_positions(int32 subscription_id) {
    const Subscription *s =
        lock_maintenance() ? hold_subscription(subscription_id, false) : nullptr;
    const std::optional<Positions> positions =
        s != nullptr ? read_positions(s->id, s->partitions) : std::nullopt;
    if (!positions)
        return false;
    // All are looked for before the first is locked: a reader finds nothing in a locked partition.
    const TimestampTz now = pg::clock_now();
    std::array<std::optional<Move>, core::partitions_max> moves{};
    const auto together = static_cast<size_t>(core::partitions_together(s->partitions));
    LoadedTicks ticks;
    for (size_t first = 0; first < positions->size(); first += together) {
        CHECK_FOR_INTERRUPTS();
        find_moves(*s, ticks, positions->subspan(first, together),
                   std::span{moves}.subspan(first, together), now);
    }
    bool more = false;
    for (const std::optional<Move> &move : moves)
        more = (move && carry_out(*s, *move, now)) || more;
    return more;
}

bool maintain_log(bool at_once) {
    fire_constraints_from_now_on();
    const TimestampTz now = pg::clock_now();
    const std::optional<FreeGenerations> free =
        wait_for_others(at_once, [&](size_t generation) { return is_read(generation, now); });
    return free && maintain_free(*free, at_once);
}

// maintain_outbox(at_once) -> boolean
STACKSAGA_FUNCTION(maintain_outbox) {
    const bool at_once = pg::Arguments(fcinfo).required_bool(0, "at_once");
    PG_RETURN_BOOL(pg::with_spi([&] {
        // The positions that are moved first may be all that keeps it.
        const std::optional<FreeGenerations> free =
            wait_for_others(at_once, [](size_t generation) { return !is_empty(generation); });
        if (!free)
            return false;
        bool more = false;
        for (int32 id : list_subscriptions())
            more = move_idle_positions(id) || more;
        return maintain_free(*free, at_once) || more;
    }));
}

} // namespace stacksaga
