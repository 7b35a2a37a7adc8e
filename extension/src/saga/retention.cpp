#include "src/saga/retention.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/function.hpp"
#include "pg/query.hpp"
#include "pg/scope.hpp"
#include "pg/settings.hpp"
#include "src/common/counters.hpp"
#include "src/ring/fingerprint.hpp"
#include "src/ring/ring.hpp"

namespace stacksaga {

namespace {

constexpr int32 sagas_max = 100000;

// Completed sagas have direction act, failed ones compensate: so the index that finds both by the
// instant of their end needs no status.
constinit pg::Statement find_expired{
    "SELECT s.saga_id, s.latest_run, s.key, s.saga"
    "  FROM unnest($2::integer[]) AS o(slot), LATERAL ("
    "       SELECT saga_id, latest_run, key,"
    "              (SELECT d.saga FROM stacksaga.saga_definition d"
    "                WHERE d.definition_id = s.definition_id) AS saga"
    "         FROM stacksaga.saga s"
    "        WHERE s.ring_id = $1 AND s.slot = o.slot AND s.direction = $3"
    "          AND s.finished_at > $4 AND s.finished_at <= $5"
    "          AND s.parent_id IS NULL AND s.run = 0"
    "        ORDER BY s.finished_at LIMIT $6 FOR UPDATE SKIP LOCKED) AS s"
    " LIMIT $6"};
constinit pg::Statement lock_run{
    "SELECT direction, finished_at FROM stacksaga.saga"
    " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
    "   FOR UPDATE SKIP LOCKED"};
constinit pg::Statement find_children{"SELECT saga_id, finished_at IS NULL FROM stacksaga.saga"
                                      " WHERE parent_id = ANY ($1) FOR UPDATE"};

constinit std::array deletions{
    pg::Statement{"DELETE FROM stacksaga.effect WHERE saga_id = ANY ($1)"},
    pg::Statement{"DELETE FROM stacksaga.failure WHERE saga_id = ANY ($1)"},
    pg::Statement{"DELETE FROM stacksaga.work WHERE saga_id = ANY ($1)"},
    pg::Statement{"DELETE FROM stacksaga.saga_signal WHERE saga_id = ANY ($1)"},
    pg::Statement{"DELETE FROM stacksaga.saga_action WHERE saga_id = ANY ($1)"}};
constinit pg::Statement delete_sagas{"DELETE FROM stacksaga.saga WHERE saga_id = ANY ($1)"
                                     " RETURNING status, saga_id, attributes IS NOT NULL"};
constinit pg::Statement delete_attributes{
    "DELETE FROM stacksaga.saga_attribute WHERE saga_id = ANY ($1)"};

/// When the retention of what finishes at the latest at this instant is over now; DT_NOBEGIN:
/// never.
TimestampTz cutoff_of(core::Direction direction, TimestampTz now) {
    const int seconds = direction == core::Direction::act ? pg::settings.saga_retention
                                                          : pg::settings.failed_saga_retention;
    return seconds < 0 ? DT_NOBEGIN : pg::time_plus(now, -int64{seconds} * USECS_PER_SEC);
}

/// Ids of sagas, in the memory context that was current when it was made.
class Ids {
public:
    void add(const pg_uuid_t &id) {
        if (count_ == capacity_) {
            capacity_ = std::max<size_t>(64, 2 * capacity_);
            const Size bytes = sizeof(pg_uuid_t) * capacity_;
            ids_ = static_cast<pg_uuid_t *>(ids_ == nullptr ? MemoryContextAlloc(context_, bytes)
                                                            : repalloc(ids_, bytes));
        }
        ids_[count_++] = id;
    }
    void shrink(size_t count) { count_ = count; }
    size_t count() const { return count_; }
    std::span<const pg_uuid_t> from(size_t first) const { return {ids_ + first, count_ - first}; }

private:
    MemoryContext context_ = CurrentMemoryContext;
    pg_uuid_t *ids_ = nullptr;
    size_t count_ = 0;
    size_t capacity_ = 0;
};

/// Adds the saga and all that it and they have started. False when one of those has not finished.
bool add_tree(const pg_uuid_t &root, Ids &doomed) {
    size_t level = doomed.count();
    doomed.add(root);
    while (level < doomed.count()) {
        pg::Rows children = find_children.run(pg::param_array(doomed.from(level)));
        level = doomed.count();
        for (uint64 i = 0; i < children.count(); ++i) {
            if (children.boolean(i, 1))
                return false;
            doomed.add(children.uuid(i, 0));
        }
    }
    return true;
}

/// Adds the later runs of a key. False when the retention of one is not over, or somebody holds it:
/// the first run, which says which is the latest, has to wait for it.
bool add_later_runs(std::string_view saga, std::string_view key, int32 latest, TimestampTz now,
                    Ids &doomed) {
    for (int32 run = 1; run <= latest; ++run) {
        const pg_uuid_t id = keyed_saga_id(saga, key, run);
        pg::Rows rows =
            lock_run.run(pg::param(id), pg::param(core::token_of_uuid(id.data).value()));
        if (rows.empty())
            return false;
        const std::optional<TimestampTz> finished_at = rows.optional_time(0, 1);
        if (!finished_at || *finished_at > cutoff_of(*core::direction_of(rows.text(0, 0)), now) ||
            !add_tree(id, doomed))
            return false;
    }
    return true;
}

int64 remove(const Ids &doomed) {
    if (doomed.count() == 0)
        return 0;
    const pg::Param ids = pg::param_array(doomed.from(0));
    CRASH_POINT("retention: before the rows of sagas");
    for (pg::Statement &deletion : deletions)
        deletion.touch(ids);
    CRASH_POINT("retention: only the sagas are left");
    pg::Rows removed = delete_sagas.run(ids);
    Ids with_attributes;
    for (uint64 i = 0; i < removed.count(); ++i) {
        count_saga(*core::status_of(removed.text(i, 0)), -1);
        if (removed.boolean(i, 2))
            with_attributes.add(removed.uuid(i, 1));
    }
    if (with_attributes.count() > 0)
        delete_attributes.touch(pg::param_array(with_attributes.from(0)));
    CRASH_POINT("retention: sagas removed");
    return static_cast<int64>(removed.count());
}

int64 remove_of(int32 ring_id, std::span<const int32> slots, core::Direction direction,
                TimestampTz now, int64 limit, TimestampTz &from) {
    const TimestampTz until = cutoff_of(direction, now);
    if (until <= from)
        return 0;
    pg::Rows rows = find_expired.run(pg::param(ring_id), pg::param_array(slots),
                                     pg::param(core::name_of(direction)), pg::param_time(from),
                                     pg::param_time(until), pg::param(limit));
    Ids doomed;
    for (uint64 i = 0; i < rows.count(); ++i) {
        const size_t before = doomed.count();
        const int32 latest = rows.int4(i, 1);
        if (!add_tree(rows.uuid(i, 0), doomed) ||
            (latest > 0 && !add_later_runs(rows.text(i, 3), rows.text(i, 2), latest, now, doomed)))
            doomed.shrink(before);
    }
    const int64 removed = remove(doomed);
    // What was found and has to stay must not be found for ever.
    if (static_cast<int64>(rows.count()) < limit || removed == 0)
        from = until;
    return removed;
}

} // namespace

int64 remove_expired_sagas(int32 ring_id, std::span<const int32> slots, int64 limit,
                           RetentionMemory &memory) {
    const TimestampTz now = pg::clock_now();
    const int64 removed =
        remove_of(ring_id, slots, core::Direction::act, now, limit, memory.completed_from);
    return removed + remove_of(ring_id, slots, core::Direction::compensate, now,
                               std::max<int64>(limit - removed, 0), memory.failed_from);
}

// expire_sagas(max_sagas) -> bigint
STACKSAGA_FUNCTION(expire_sagas) {
    const int32 limit = pg::Arguments(fcinfo).required_int4(0, "max_sagas");
    if (limit < 1 || limit > sagas_max)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"max_sagas\" is out of range"),
                        errdetail("The value is %d.", limit), errhint("Use 1 to %d.", sagas_max)));
    PG_RETURN_INT64(pg::with_spi([&] {
        const Ring ring = current_ring();
        auto *slots = static_cast<int32 *>(palloc(sizeof(int32) * static_cast<size_t>(ring.slots)));
        for (int32 slot = 0; slot < ring.slots; ++slot)
            slots[slot] = slot;
        RetentionMemory nothing{};
        return remove_expired_sagas(ring.ring_id, {slots, static_cast<size_t>(ring.slots)}, limit,
                                    nothing);
    }));
}

} // namespace stacksaga
