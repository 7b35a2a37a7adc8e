#include "src/position.hpp"

#include "pg/query.hpp"
#include "src/outbox_lock.hpp"

namespace stacksaga {

namespace {

#define POSITION_COLUMNS                                                                           \
    "p.partition, p.version, p.tick, p.number, p.batch_id, p.batch_tick, p.batch_number,"          \
    " p.batch_size, p.deliveries, p.lease_until"
constinit pg::Statement read_all{
    "SELECT " POSITION_COLUMNS "  FROM generate_series(0, $2 - 1) AS n(partition), LATERAL ("
    "       SELECT * FROM stacksaga.subscription_position AS l"
    "        WHERE l.subscription_id = $1 AND l.partition = n.partition::smallint"
    "        ORDER BY l.version DESC LIMIT 1) AS p"};
constinit pg::Statement read_one{
    "SELECT " POSITION_COLUMNS " FROM stacksaga.subscription_position AS p"
    " WHERE p.subscription_id = $1 AND p.partition = $2 ORDER BY p.version DESC LIMIT 1"};
constinit pg::Statement append{
    "INSERT INTO stacksaga.subscription_position (subscription_id, partition, version, tick,"
    "       number, written_at, batch_id, batch_tick, batch_number, batch_size, deliveries,"
    "       lease_until, consumer)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"};

Position position_of_row(const pg::Rows &rows, uint64 row) {
    Position p{};
    p.partition = rows.int2(row, 0);
    p.version = rows.int8(row, 1);
    p.at = {.tick = rows.int8(row, 2), .number = rows.int8(row, 3)};
    p.deliveries = rows.int4(row, 8);
    if (rows.is_null(row, 4))
        return p;
    p.batch_id = rows.int8(row, 4);
    p.batch_end = {.tick = rows.int8(row, 5), .number = rows.int8(row, 6)};
    p.batch_size = rows.int4(row, 7);
    p.lease_until = rows.time(row, 9);
    return p;
}

} // namespace

Positions read_positions(int32 subscription_id) {
    Positions positions{};
    pg::Rows rows = read_all.run(pg::param(subscription_id), pg::param(log_partitions));
    if (rows.count() != positions.size())
        elog(ERROR, "subscription %d has " UINT64_FORMAT " positions", subscription_id,
             rows.count());
    for (uint64 row = 0; row < rows.count(); ++row)
        positions[static_cast<size_t>(rows.int2(row, 0))] = position_of_row(rows, row);
    return positions;
}

std::optional<Position> lock_position(int32 subscription_id, int16 partition, bool wait) {
    if (!lock_partition(subscription_id, partition, wait))
        return std::nullopt;
    pg::Rows rows = read_one.run(pg::param(subscription_id), pg::param(partition));
    if (rows.empty())
        return std::nullopt;
    return position_of_row(rows, 0);
}

void write_position(int32 subscription_id, Position &p, TimestampTz now,
                    std::optional<std::string_view> consumer) {
    ++p.version;
    const bool has_batch = p.batch_id != 0;
    auto of_batch = [&](int64 value) {
        return has_batch ? pg::param(value) : pg::param_null(INT8OID);
    };
    append.run(pg::param(subscription_id), pg::param(p.partition), pg::param(p.version),
               pg::param(p.at.tick), pg::param(p.at.number), pg::param_time(now),
               of_batch(p.batch_id), of_batch(p.batch_end.tick), of_batch(p.batch_end.number),
               has_batch ? pg::param(p.batch_size) : pg::param_null(INT4OID),
               pg::param(p.deliveries),
               has_batch ? pg::param_time(p.lease_until) : pg::param_null(TIMESTAMPTZOID),
               pg::param(consumer));
}

void move_position(int32 subscription_id, Position &p, core::LogPosition to, TimestampTz now) {
    if (p.at != to)
        p.deliveries = 0;
    p.at = to;
    p.batch_id = 0;
    write_position(subscription_id, p, now, std::nullopt);
}

} // namespace stacksaga
