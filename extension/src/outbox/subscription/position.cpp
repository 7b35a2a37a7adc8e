#include "src/outbox/subscription/position.hpp"

#include "core/outbox/snapshot_window.hpp"

#include "pg/crash_point.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/table/lookup.hpp"
#include "src/common/kept_rows.hpp"
#include "src/outbox/log/log_lock.hpp"
#include "src/outbox/outbox_tables.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement append{
    "INSERT INTO stacksaga.subscription_position (subscription_id, partition, version, tick,"
    "       number, written_at, batch_id, batch_tick, batch_number, batch_size, batch_total, room,"
    "       lease_until, consumer, lost_tick, lost_number, answered_at, released_batch,"
    "       released_until, release_reason)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,"
    "         $20)"};
// Versions rise by one.
#define VERSION_TEXT(row)                                                                          \
    row ".subscription_id::text || ' ' || " row ".partition::text || ' ' || " row ".version::text"
#define OF_PARTITION(row)                                                                          \
    " FROM stacksaga.subscription_position AS " row " WHERE " row ".subscription_id = $1 AND " row \
    ".partition = $2" IS_NOT_KEPT("subscription_position", VERSION_TEXT(row), "$3")
constinit pg::Statement forget{"DELETE" OF_PARTITION("d") "   AND d.version < least($4, $5 + ("
                                                          "       SELECT f.version" OF_PARTITION(
                                                              "f") " ORDER BY f.version LIMIT 1))"};
constinit pg::Statement first_version{
    "SELECT " VERSION_TEXT("f") OF_PARTITION("f") " AND f.version < $4 ORDER BY f.version LIMIT 1"};

using PartitionKey = std::array<pg::KeyColumn, 2>;

PartitionKey key_of(int32 subscription, int16 of_partition) {
    return {pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(subscription)},
            pg::KeyColumn{F_INT2EQ, InvalidOid, Int16GetDatum(of_partition)}};
}

/// From the columns of a row.
Position position_of(TupleTableSlot *row) {
    slot_getallattrs(row);
    const auto is_null = [&](PositionColumn column) {
        return row->tts_isnull[pg::column_number(column) - 1];
    };
    const auto value = [&](PositionColumn column) {
        return row->tts_values[pg::column_number(column) - 1];
    };
    using enum PositionColumn;
    Position p{};
    p.partition = DatumGetInt16(value(partition));
    p.version = DatumGetInt64(value(version));
    p.at = {.tick = DatumGetInt64(value(tick)), .number = DatumGetInt64(value(number))};
    p.room = DatumGetInt32(value(room));
    if (!is_null(lost_tick))
        p.lost_until = {.tick = DatumGetInt64(value(lost_tick)),
                        .number = DatumGetInt64(value(lost_number))};
    if (!is_null(answered_at))
        p.answered_at = DatumGetTimestampTz(value(answered_at));
    if (!is_null(released_batch))
        p.released_batch = DatumGetInt64(value(released_batch));
    if (!is_null(released_until))
        p.released_until = DatumGetTimestampTz(value(released_until));
    if (!is_null(release_reason)) // the row goes
        p.release_reason =
            pg::view_of_text(PointerGetDatum(PG_DETOAST_DATUM_COPY(value(release_reason))));
    if (is_null(batch_id))
        return p;
    p.batch_id = DatumGetInt64(value(batch_id));
    p.batch_end = {.tick = DatumGetInt64(value(batch_tick)),
                   .number = DatumGetInt64(value(batch_number))};
    p.batch_size = DatumGetInt32(value(batch_size));
    p.batch_total = DatumGetInt32(value(batch_total));
    p.lease_until = DatumGetTimestampTz(value(lease_until));
    if (!is_null(consumer))
        p.consumer = consumer_hash(pg::view_of_text(value(consumer)));
    return p;
}

/// Calls `body` with a reader of the versions, latest first. By the index and not by a query: its
/// plan, made while there are few versions, would read them all when there are many.
template <class F> void with_versions(F &&body) {
    pg::with_index<BackwardScanDirection>(position_table, PositionIndex::primary_key,
                                          static_cast<F &&>(body));
}

/// The latest version.
std::optional<Position> latest_position(pg::IndexReader &reader, int32 subscription,
                                        int16 of_partition) {
    reader.seek(key_of(subscription, of_partition));
    TupleTableSlot *row = reader.next();
    return row == nullptr ? std::optional<Position>{} : position_of(row);
}

std::optional<Position> latest_position(int32 subscription, int16 of_partition) {
    std::optional<Position> latest;
    with_versions([&](pg::IndexReader &reader) {
        latest = latest_position(reader, subscription, of_partition);
    });
    return latest;
}

} // namespace

std::optional<Position> read_position(int32 subscription_id, int16 partition) {
    CommandCounterIncrement(); // what this transaction has written itself counts as well
    return latest_position(subscription_id, partition);
}

std::optional<Positions> read_positions(int32 subscription_id, int32 partitions) {
    const auto size = static_cast<size_t>(partitions);
    auto *positions = static_cast<Position *>(palloc(sizeof(Position) * size));
    size_t found = 0;
    CommandCounterIncrement();
    with_versions([&](pg::IndexReader &reader) {
        for (; found < size; ++found) {
            const std::optional<Position> latest =
                latest_position(reader, subscription_id, static_cast<int16>(found));
            if (!latest)
                return;
            positions[found] = *latest;
        }
    });
    if (found < size)
        return std::nullopt;
    return Positions{positions, size};
}

uint32 consumer_hash(std::string_view consumer) {
    const uint32 hash = hash_bytes(reinterpret_cast<const unsigned char *>(consumer.data()),
                                   static_cast<int>(consumer.size()));
    return hash == 0 ? 1 : hash;
}

std::optional<Position> lock_position(int32 subscription_id, int16 partition, bool wait) {
    if (!lock_partition(subscription_id, partition, wait))
        return std::nullopt;
    return read_position(subscription_id, partition);
}

void write_position(int32 subscription_id, Position &p, TimestampTz now,
                    std::optional<std::string_view> consumer) {
    ++p.version;
    const bool has_batch = p.batch_id != 0;
    if (p.lost_until <= p.at)
        p.lost_until = {};
    auto of_loss = [&](int64 value) {
        return p.lost_until == core::LogPosition{} ? pg::param_null(INT8OID) : pg::param(value);
    };
    auto of_batch = [&](int64 value) {
        return has_batch ? pg::param(value) : pg::param_null(INT8OID);
    };
    auto time_or_null = [](TimestampTz time) {
        return time == DT_NOBEGIN ? pg::param_null(TIMESTAMPTZOID) : pg::param_time(time);
    };
    append.run(pg::param(subscription_id), pg::param(p.partition), pg::param(p.version),
               pg::param(p.at.tick), pg::param(p.at.number), pg::param_time(now),
               of_batch(p.batch_id), of_batch(p.batch_end.tick), of_batch(p.batch_end.number),
               has_batch ? pg::param(p.batch_size) : pg::param_null(INT4OID),
               has_batch ? pg::param(p.batch_total) : pg::param_null(INT4OID), pg::param(p.room),
               has_batch ? pg::param_time(p.lease_until) : pg::param_null(TIMESTAMPTZOID),
               pg::param(consumer), of_loss(p.lost_until.tick), of_loss(p.lost_until.number),
               time_or_null(p.answered_at),
               p.released_batch == 0 ? pg::param_null(INT8OID) : pg::param(p.released_batch),
               time_or_null(p.released_until), pg::param(p.release_reason));
    CRASH_POINT("position: written");
}

void move_position(int32 subscription_id, Position &p, core::LogPosition to, TimestampTz now) {
    p.at = to;
    p.batch_id = 0;
    write_position(subscription_id, p, now, std::nullopt);
}

void carry_position(int32 subscription_id, Position &p, core::LogPosition to, TimestampTz now) {
    p.at = to;
    p.batch_end = std::max(p.batch_end, to);
    write_position(subscription_id, p, now, std::nullopt);
}

bool forget_positions(int32 subscription_id, int16 partition, int64 limit, TimestampTz now) {
    const std::optional<Position> latest = latest_position(subscription_id, partition);
    if (!latest)
        return false;
    const uint64 gone =
        forget.touch(pg::param(subscription_id), pg::param(partition), pg::param_time(now),
                     pg::param(latest->version), pg::param(limit));
    CRASH_POINT("position: old versions removed");
    return static_cast<int64>(gone) == limit;
}

bool forget_removable_positions(int32 subscription_id, int16 partition, int64 limit,
                                TimestampTz now) {
    const std::optional<Position> latest = latest_position(subscription_id, partition);
    if (!latest)
        return false;
    const pg::Param of_subscription = pg::param(subscription_id),
                    of_partition = pg::param(partition), instant = pg::param_time(now),
                    end = pg::param(latest->version);
    const auto remove = [&](int64 wanted) {
        const auto count = static_cast<int64>(
            forget.touch(of_subscription, of_partition, instant, end, pg::param(wanted)));
        return Removed{.found = count, .rows = count};
    };
    const auto first = [&]() -> std::optional<std::string_view> {
        const pg::Rows rows = first_version.run(of_subscription, of_partition, instant, end);
        return rows.empty() ? std::nullopt : std::optional{rows.text(0)};
    };
    return remove_passing_over("subscription_position", now, limit, remove, first) >= limit;
}

} // namespace stacksaga
