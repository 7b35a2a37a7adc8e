#include "src/queue/queue_limits.hpp"

#include "core/common/session_cache.hpp"
#include "core/queue/claim_rate.hpp"
#include "core/ring/murmur3.hpp"
#include "core/time/length.hpp"

#include "pg/clock.hpp"
#include "pg/lock.hpp"
#include "pg/statement/array.hpp"
#include "pg/statement/attempt.hpp"
#include "pg/statement/function.hpp"
#include "pg/table/lookup.hpp"
#include "pg/table/relation_change.hpp"
#include "src/work/work_table.hpp"

namespace stacksaga {

namespace {

constexpr pg::Nulls nullable = pg::Nulls::allowed;

constexpr std::array queue_columns{
    pg::TableColumn{"ring_id", INT4OID},
    pg::TableColumn{"queue", TEXTOID},
    pg::TableColumn{"max_running", INT4OID, nullable},
    pg::TableColumn{"max_running_per_group", INT4OID, nullable},
    pg::TableColumn{"rate", INT4OID, nullable},
    pg::TableColumn{"rate_interval", INTERVALOID, nullable},
    pg::TableColumn{"paused_at", TIMESTAMPTZOID, nullable},
    pg::TableColumn{"pause_reason", TEXTOID, nullable},
    pg::TableColumn{"paused_until", TIMESTAMPTZOID, nullable},
};
constexpr std::array queue_indexes{
    pg::TableIndex{
        .name = "queue_pkey", .key = {QueueColumn::ring_id, QueueColumn::queue}, .is_unique = true},
};

constexpr std::array queue_claims_columns{
    pg::TableColumn{"ring_id", INT4OID},
    pg::TableColumn{"queue", TEXTOID},
    pg::TableColumn{"claimed_at", TIMESTAMPTZARRAYOID},
    pg::TableColumn{"claims", INT4ARRAYOID},
};
constexpr std::array queue_claims_indexes{
    pg::TableIndex{.name = "queue_claims_pkey",
                   .key = {QueueClaimsColumn::ring_id, QueueClaimsColumn::queue},
                   .is_unique = true},
};

} // namespace

constinit pg::Table queue_table{{.name = "queue",
                                 .columns = queue_columns,
                                 .indexes = queue_indexes,
                                 .newer_versions = pg::NewerVersions::used}};
constinit pg::Table queue_claims_table{{.name = "queue_claims",
                                        .columns = queue_claims_columns,
                                        .indexes = queue_claims_indexes,
                                        .newer_versions = pg::NewerVersions::used}};

namespace {

/// Longest wait of a claimer for the queue's lock.
constexpr int claim_wait_ms = 50;
/// How long set_queue() waits for the lock at a time, since claims wait behind it, and how long it
/// pauses between two tries.
constexpr int change_wait_ms = 100;

// Used where the table of work is not accessed directly: somebody has partitioned it, or Citus
// manages it.
constinit pg::Statement count_by_sql{
    "SELECT count(*)::int FROM (SELECT 1 FROM stacksaga.work AS w"
    "  WHERE ring_id = $1 AND queue = $2 AND queue IS NOT NULL AND lease_until IS NOT NULL"
    "    AND ($3::text IS NULL OR group_key = $3) LIMIT $4) AS leased",
    pg::Reads::this_node};

uint32 hash_of(std::string_view queue) {
    return hash_bytes(reinterpret_cast<const unsigned char *>(queue.data()),
                      static_cast<int>(queue.size()));
}

bool try_lock(int32 ring_id, std::string_view queue, LOCKMODE mode, int wait_ms) {
    const auto ring = static_cast<uint32>(ring_id);
    const uint32 hash = hash_of(queue);
    return pg::lock(pg::LockClass::queue_limits, ring, hash, mode, false) ||
           pg::attempt(wait_ms,
                       [&] { pg::lock(pg::LockClass::queue_limits, ring, hash, mode, true); });
}

std::array<pg::Param, 2> key_of(int32 ring_id, std::string_view queue) {
    return {pg::param(ring_id), pg::param(queue)};
}

std::optional<int32> optional_int4(const pg::TableRow &row, QueueColumn column) {
    return row.is_null(column) ? std::optional<int32>{} : row.int4(column);
}

std::optional<pg::TableRow> find_claims(int32 ring_id, std::string_view queue) {
    return queue_claims_table.find_one({.key = key_of(ring_id, queue)});
}

core::ClaimWindow read_claims(const std::optional<pg::TableRow> &row) {
    core::ClaimWindow window;
    if (!row)
        return window;
    const pg::Elements at = pg::elements_of(
        DatumGetArrayTypeP(row->value(QueueClaimsColumn::claimed_at)), TIMESTAMPTZOID);
    const pg::Elements counts =
        pg::elements_of(DatumGetArrayTypeP(row->value(QueueClaimsColumn::claims)), INT4OID);
    for (int i = 0; i < std::min(at.count, counts.count); ++i)
        window.load(DatumGetTimestampTz(at.values[i]), DatumGetInt32(counts.values[i]));
    return window;
}

/// The number of rows of an index of leased work that begin with these columns, up to a limit.
int32 count_rows(WorkIndex index, std::span<const pg::KeyColumn> key, int32 enough) {
    int32 count = 0;
    pg::each_row(work_table, index, key, [&](TupleTableSlot *) { return ++count < enough; });
    return count;
}

int32 count_rows_by_sql(int32 ring_id, std::string_view queue,
                        std::optional<std::string_view> group, int32 enough) {
    return count_by_sql
        .run(pg::param(ring_id), pg::param(queue), pg::param(group),
             pg::param(static_cast<int64>(enough)))
        .int4(0);
}

pg::KeyColumn text_key(std::string_view value) {
    return {F_TEXTEQ, C_COLLATION_OID, PointerGetDatum(pg::make_text(value))};
}

} // namespace

QueueLimits read_limits(int32 ring_id, std::string_view queue) {
    const std::optional<pg::TableRow> row = queue_table.find_one({.key = key_of(ring_id, queue)});
    if (!row)
        return {};
    QueueLimits limits{.max_running = optional_int4(*row, QueueColumn::max_running),
                       .max_running_per_group =
                           optional_int4(*row, QueueColumn::max_running_per_group),
                       .rate = optional_int4(*row, QueueColumn::rate)};
    if (!row->is_null(QueueColumn::paused_at))
        limits.paused_until = row->optional_time(QueueColumn::paused_until).value_or(DT_NOEND);
    if (limits.rate)
        limits.rate_interval =
            core::longest(*pg::interval_in_range(row->value(QueueColumn::rate_interval), true));
    return limits;
}

QueueLimits limits_of(int32 ring_id, std::string_view queue) {
    static constinit core::SessionCache<QueueLimits, 16> known{};
    const uint64 key = core::murmur3_x64_128(queue, static_cast<uint32>(ring_id)).h1;
    return known.value(
        key, [&] { return read_limits(ring_id, queue); }, pg::relations_state());
}

void announce_limits() {
    pg::announce_change("queue");
}

std::optional<QueueLimits> enter_queue(int32 ring_id, std::string_view queue) {
    const LOCKMODE mode = limits_of(ring_id, queue).has_any() ? ExclusiveLock : ShareLock;
    if (!try_lock(ring_id, queue, mode, claim_wait_ms))
        return std::nullopt;
    const QueueLimits limits = limits_of(ring_id, queue);
    if (limits.has_any() && mode == ShareLock) // they have just been set
        return std::nullopt;
    return limits;
}

void lock_limits(int32 ring_id, std::string_view queue) {
    const int64 timeout_us = int64{LockTimeout} * 1000;
    const int64 begun = pg::steady_now();
    while (!try_lock(ring_id, queue, ExclusiveLock, change_wait_ms)) {
        if (timeout_us > 0 && pg::steady_now() - begun > timeout_us)
            ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
                            errmsg("canceling statement due to lock timeout"),
                            errdetail("A transaction that claimed from the queue has not ended."),
                            errhint("Services should commit as soon as they have claimed.")));
        (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, change_wait_ms,
                        PG_WAIT_EXTENSION);
        ResetLatch(MyLatch);
        CHECK_FOR_INTERRUPTS();
    }
}

int32 count_leased(int32 ring_id, std::string_view queue, int32 enough) {
    if (work_table.obstacle() != nullptr)
        return count_rows_by_sql(ring_id, queue, std::nullopt, enough);
    const std::array key{pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(ring_id)},
                         text_key(queue)};
    return count_rows(WorkIndex::leased, key, enough);
}

int32 count_leased(int32 ring_id, std::string_view queue, std::string_view group, int32 enough) {
    if (work_table.obstacle() != nullptr)
        return count_rows_by_sql(ring_id, queue, group, enough);
    const std::array key{pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(ring_id)},
                         text_key(queue), text_key(group)};
    return count_rows(WorkIndex::leased_by_group, key, enough);
}

QueueRoom room_of(int32 ring_id, std::string_view queue, const QueueLimits &limits, int32 wanted,
                  TimestampTz now) {
    QueueRoom room{.steps = wanted, .more_at = DT_NOEND};
    if (limits.max_running) {
        const int32 running = count_leased(ring_id, queue, *limits.max_running);
        room.steps = std::min(room.steps, *limits.max_running - running);
    }
    if (limits.rate && room.steps > 0) {
        const core::ClaimWindow window = read_claims(find_claims(ring_id, queue));
        const int64 left = window.left(now, *limits.rate, limits.rate_interval);
        if (left == 0)
            room.more_at = window.next(now, *limits.rate, limits.rate_interval);
        room.steps = static_cast<int32>(std::min<int64>(room.steps, left));
    }
    return room;
}

void note_claims(int32 ring_id, std::string_view queue, const QueueLimits &limits, int32 count,
                 TimestampTz now) {
    std::optional<pg::TableRow> row = find_claims(ring_id, queue);
    core::ClaimWindow window = read_claims(row);
    window.note(now, count, limits.rate_interval);
    std::array<TimestampTz, core::ClaimWindow::room> at{};
    std::array<int32, core::ClaimWindow::room> counts{};
    const std::span<const core::ClaimsAt> entries = window.entries();
    for (size_t i = 0; i < entries.size(); ++i) {
        at[i] = entries[i].at;
        counts[i] = static_cast<int32>(entries[i].count);
    }
    using Column = QueueClaimsColumn;
    const std::array values{
        pg::assign(Column::claimed_at,
                   pg::param_time_array(std::span<const TimestampTz>{at.data(), entries.size()})),
        pg::assign(Column::claims,
                   pg::param_array(std::span<const int32>{counts.data(), entries.size()}))};
    if (row) {
        queue_claims_table.update(*row, values);
        return;
    }
    queue_claims_table.insert(std::array{pg::assign(Column::ring_id, pg::param(ring_id)),
                                         pg::assign(Column::queue, pg::param(queue)), values[0],
                                         values[1]});
}

} // namespace stacksaga
