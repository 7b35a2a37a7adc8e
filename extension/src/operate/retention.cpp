#include "src/operate/retention.hpp"

#include "core/ring/token.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/step_kind.hpp"

#include "pg/citus/citus.hpp"
#include "pg/citus/shard_lock.hpp"
#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/settings.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/counters.hpp"
#include "src/common/kept_rows.hpp"
#include "src/common/limits.hpp"
#include "src/dedupe/fingerprint.hpp"
#include "src/ring/rings.hpp"
#include "src/saga/child.hpp"
#include "src/saga/start.hpp"

namespace stacksaga {

namespace {

constexpr int32 sagas_max = 100000;
// A saga may go since before its end commits, where its definition keeps it for no time at all.
constexpr int64 commit_time_us = 600 * USECS_PER_SEC;

#define OF_SAGA " WHERE saga_id = $1 AND token OPERATOR(stacksaga.=) $2::stacksaga.ring_token"
#define OF_SAGAS " WHERE saga_id = ANY ($1)"

// Completed sagas have direction act, failed ones compensate: so the index that finds both by the
// instant of their end needs no status. Its order names remove_at too, which is the same for all
// that the settings keep.
#define FIND_DUE(DUE, LOCK)                                                                        \
    "SELECT s.saga_id, s.definition_id, s.latest_run, s.key, s.run"                                \
    "  FROM unnest($2::integer[]) AS o(slot), unnest($3::text[]) AS d(direction), LATERAL ("       \
    "       SELECT saga_id, definition_id, latest_run, key, run FROM stacksaga.saga AS s"          \
    "        WHERE s.ring_id = $1 AND s.slot = o.slot AND s.direction = d.direction"               \
    "          AND s.finished_at IS NOT NULL AND " DUE                                             \
    "          AND s.parent_id IS NULL" IS_NOT_KEPT(                                               \
        "saga", "s.saga_id::text",                                                                 \
        "$7") "        ORDER BY s.remove_at, s.finished_at LIMIT $6" LOCK ") AS s LIMIT $6"
#define FIND_EXPIRED(LOCK)                                                                         \
    FIND_DUE("s.remove_at IS NULL AND s.finished_at > $4 AND s.finished_at <= $5", LOCK)
#define FIND_REMOVABLE(LOCK) FIND_DUE("s.remove_at > $4 AND s.remove_at <= $5", LOCK)
enum class ExpiredColumn : uint8_t { saga_id, definition_id, latest_run, key, run };
constinit pg::Select<ExpiredColumn> find_and_lock{FIND_EXPIRED(" FOR UPDATE SKIP LOCKED")};
constinit pg::Select<ExpiredColumn> find_here{FIND_EXPIRED(""), pg::Reads::this_node};
constinit pg::Select<ExpiredColumn> find_and_lock_removable{
    FIND_REMOVABLE(" FOR UPDATE SKIP LOCKED")};
constinit pg::Select<ExpiredColumn> find_removable_here{FIND_REMOVABLE(""), pg::Reads::this_node};
#define LOCK_SAGA                                                                                  \
    "SELECT definition_id, latest_run, direction, finished_at, remove_at, key, run"                \
    "  FROM stacksaga.saga" OF_SAGA " FOR UPDATE"
constinit pg::Statement find_id{"SELECT FROM stacksaga.saga" OF_SAGA};
enum class LockedColumn : uint8_t {
    definition_id,
    latest_run,
    direction,
    finished_at,
    remove_at,
    key,
    run,
};
constinit pg::Select<LockedColumn> lock_run{LOCK_SAGA " SKIP LOCKED"};
constinit pg::Select<LockedColumn> lock_child{LOCK_SAGA};

enum class RemovedColumn : uint8_t { status, saga_id, has_attributes };

/// Deletes the rows of a saga in other tables, then the saga's.
struct Deletions {
    std::array<pg::Statement, 7> rows;
    pg::Select<RemovedColumn> sagas;
    pg::Statement attributes;
};
#define DELETIONS(OF)                                                                              \
    {                                                                                              \
        .rows = {pg::Statement{"DELETE FROM stacksaga.effect" OF},                                 \
                 pg::Statement{"DELETE FROM stacksaga.failure" OF},                                \
                 pg::Statement{"DELETE FROM stacksaga.step_release" OF},                           \
                 pg::Statement{"DELETE FROM stacksaga.work" OF},                                   \
                 pg::Statement{"DELETE FROM stacksaga.saga_signal" OF},                            \
                 pg::Statement{"DELETE FROM stacksaga.saga_action" OF},                            \
                 pg::Statement{"DELETE FROM stacksaga.saga_contradiction" OF}},                    \
        .sagas = pg::Select<RemovedColumn>{"DELETE FROM stacksaga.saga" OF                         \
                                           " RETURNING status, saga_id,"                           \
                                           " attributes IS NOT NULL AS has_attributes"},           \
        .attributes = pg::Statement{"DELETE FROM stacksaga.saga_attribute" OF},                    \
    }
// A key with several runs is kept from now on, so that the rows of its runs go together.
#define KEEP_KEYS(OF)                                                                              \
    "INSERT INTO stacksaga.removed_saga AS r (saga_id, token, kept_since, finished_at,"            \
    "       definition_id, latest_run, status, fingerprint)"                                       \
    " SELECT saga_id, token, CASE WHEN run + latest_run > 0 THEN $3 ELSE finished_at END,"         \
    "        finished_at, definition_id, latest_run, status, fingerprint"                          \
    "   FROM stacksaga.saga" OF                                                                    \
    "    AND key IS NOT NULL AND parent_id IS NULL AND (finished_at > $4 OR run + latest_run > 0)" \
    " ON CONFLICT (saga_id, token) DO UPDATE SET kept_since = excluded.kept_since,"                \
    "       finished_at = excluded.finished_at, definition_id = excluded.definition_id,"           \
    "       latest_run = excluded.latest_run, status = excluded.status,"                           \
    "       fingerprint = excluded.fingerprint"
constinit pg::Statement keep_keys_of_many{KEEP_KEYS(OF_SAGAS " AND $2::bigint IS NULL")};
constinit pg::Statement keep_keys_of_one{KEEP_KEYS(OF_SAGA)};
constinit pg::Statement keep_first_run{"UPDATE stacksaga.removed_saga SET kept_since = $3" OF_SAGA
                                       " AND latest_run = $4"};
#define DUE_KEYS " FROM stacksaga.removed_saga WHERE kept_since > $1 AND kept_since <= $2"
// Where Citus distributes them: by one statement over all shards, or one key alone.
#define DUE_DISTRIBUTED_KEYS DUE_KEYS IS_NOT_KEPT_OF("$3", "saga_id::text")
enum class DueColumn : uint8_t { found, last };
constinit pg::Select<DueColumn> due_distributed_keys{
    "SELECT count(*) AS found, max(kept_since) AS last FROM ("
    "       SELECT kept_since" DUE_DISTRIBUTED_KEYS " ORDER BY kept_since LIMIT $4) AS due"};
constinit pg::Statement forget_distributed_keys{"DELETE" DUE_DISTRIBUTED_KEYS};
constinit pg::Statement first_distributed_key{"SELECT saga_id" DUE_DISTRIBUTED_KEYS
                                              " ORDER BY kept_since LIMIT 1"};
constinit pg::Statement forget_distributed_key{"DELETE FROM stacksaga.removed_saga"
                                               " WHERE saga_id = $1"};
#define FIRST_KEYS                                                                                 \
    DUE_KEYS IS_NOT_KEPT("removed_saga", "saga_id::text", "$3") " ORDER BY kept_since LIMIT "
constinit pg::Statement first_due_key{"SELECT saga_id::text" FIRST_KEYS "1"};
enum class ForgottenColumn : uint8_t { last, keys };
constinit pg::Select<ForgottenColumn> forget_first_keys{
    "WITH due AS MATERIALIZED (SELECT saga_id, token, kept_since" FIRST_KEYS "$4),"
    " gone AS ("
    "       DELETE FROM stacksaga.removed_saga AS r USING due"
    "        WHERE r.saga_id = due.saga_id AND r.token OPERATOR(stacksaga.=) due.token)"
    " SELECT max(kept_since) AS last, count(*) AS keys FROM due"};
constinit Deletions of_many DELETIONS(OF_SAGAS);
constinit Deletions of_one DELETIONS(OF_SAGA);

/// The latest end of a saga whose retention is over now; DT_NOBEGIN: no retention ends.
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

pg::Param token_param(const pg_uuid_t &id) {
    return pg::param(core::token_of_uuid(id.data).value());
}

void hold_shard_of(const pg_uuid_t &id) {
    pg::hold_shard("saga", core::token_of_uuid(id.data).value());
}

/// Adds the saga and all that it and they have started. False when one of those has not finished.
bool add_tree(const pg_uuid_t &root, const Definition &definition, Ids &doomed) {
    check_stack_depth();
    doomed.add(root);
    for (const Step &step : definition.steps) {
        if (step.waits_for() != core::StepWait::child)
            continue;
        for (int32 run = 0;; ++run) {
            const pg_uuid_t id = child_id(root, step.no, run);
            hold_shard_of(id);
            const auto child = lock_child.run(pg::param(id), token_param(id));
            if (child.empty())
                break;
            if (child.is_null(0, LockedColumn::finished_at) ||
                !add_tree(id, load_definition(child.int4(0, LockedColumn::definition_id)), doomed))
                return false;
        }
    }
    return true;
}

/// Whether the retention of a saga is over.
bool may_go(const pg::RowsOf<LockedColumn> &saga, TimestampTz now) {
    const std::optional<TimestampTz> finished_at = saga.optional_time(0, LockedColumn::finished_at);
    if (!finished_at)
        return false;
    if (const auto remove_at = saga.optional_time(0, LockedColumn::remove_at))
        return *remove_at <= now;
    return *finished_at <=
           cutoff_of(*core::direction_of(saga.text(0, LockedColumn::direction)), now);
}

/// Adds the later runs of a key. False when the retention of one is not over, or another session
/// holds it: then the first run, which names the latest, has to wait for it.
bool add_later_runs(std::string_view saga, std::string_view key, int32 latest, TimestampTz now,
                    Ids &doomed) {
    for (int32 run = 1; run <= latest; ++run) {
        const pg_uuid_t id = keyed_saga_id(saga, key, run);
        hold_shard_of(id);
        const auto rows = lock_run.run(pg::param(id), token_param(id));
        if (rows.empty() || !may_go(rows, now) ||
            !add_tree(id, load_definition(rows.int4(0, LockedColumn::definition_id)), doomed))
            return false;
    }
    return true;
}

int64 remove_together(std::span<const pg_uuid_t> doomed, TimestampTz now) {
    const pg::Param ids = pg::param_array(doomed);
    CRASH_POINT("retention: before the rows of sagas");
    keep_keys_of_many.touch(ids, pg::param_null(INT8OID), pg::param_time(now),
                            pg::param_time(forgotten_until(now)));
    for (pg::Statement &deletion : of_many.rows)
        deletion.touch(ids);
    CRASH_POINT("retention: only the sagas are left");
    const auto removed = of_many.sagas.run(ids);
    Ids with_attributes;
    for (uint64 i = 0; i < removed.count(); ++i) {
        count_saga(*core::status_of(removed.text(i, RemovedColumn::status)), -1);
        if (removed.boolean(i, RemovedColumn::has_attributes))
            with_attributes.add(removed.uuid(i, RemovedColumn::saga_id));
    }
    if (with_attributes.count() > 0)
        of_many.attributes.touch(pg::param_array(with_attributes.from(0)));
    CRASH_POINT("retention: sagas removed");
    return static_cast<int64>(removed.count());
}

/// On Citus, where a statement names the shard.
int64 remove_one_by_one(std::span<const pg_uuid_t> doomed, TimestampTz now) {
    for (const pg_uuid_t &saga_id : doomed) {
        CHECK_FOR_INTERRUPTS();
        const pg::Param id = pg::param(saga_id), token = token_param(saga_id);
        keep_keys_of_one.touch(id, token, pg::param_time(now),
                               pg::param_time(forgotten_until(now)));
        for (pg::Statement &deletion : of_one.rows)
            deletion.touch(id, token);
        const auto removed = of_one.sagas.run(id, token);
        if (removed.empty())
            continue;
        count_saga(*core::status_of(removed.text(0, RemovedColumn::status)), -1);
        if (removed.boolean(0, RemovedColumn::has_attributes))
            of_one.attributes.touch(id, token);
    }
    return static_cast<int64>(doomed.size());
}

/// A saga whose retention is over, and the first run of its key.
struct Expired {
    pg_uuid_t id;
    int32 definition_id;
    int32 latest_run;
    std::string_view key;
    int32 run;
};

/// Locked. nullopt: on Citus, where the shard in which it was found has moved or changed since.
std::optional<Expired> read_expired(const pg::RowsOf<ExpiredColumn> &found, uint64 row,
                                    bool is_locked) {
    const pg_uuid_t id = found.uuid(row, ExpiredColumn::saga_id);
    if (is_locked)
        return Expired{.id = id,
                       .definition_id = found.int4(row, ExpiredColumn::definition_id),
                       .latest_run = found.int4(row, ExpiredColumn::latest_run),
                       .key = found.optional_text(row, ExpiredColumn::key).value_or(""),
                       .run = found.int4(row, ExpiredColumn::run)};
    hold_shard_of(id);
    const auto now = lock_run.run(pg::param(id), token_param(id));
    if (now.empty())
        return std::nullopt;
    return Expired{.id = id,
                   .definition_id = now.int4(0, LockedColumn::definition_id),
                   .latest_run = now.int4(0, LockedColumn::latest_run),
                   .key = now.optional_text(0, LockedColumn::key).value_or(""),
                   .run = now.int4(0, LockedColumn::run)};
}

/// Adds the sagas that are removed with it; false when one of them has to stay.
bool add_all_runs(const Expired &e, TimestampTz now, Ids &doomed) {
    const Definition &definition = load_definition(e.definition_id);
    if (e.run > 0) { // it goes with the first run, where that is there
        const pg_uuid_t first = keyed_saga_id(definition.saga, e.key, 0);
        if (!find_id.run(pg::param(first), token_param(first)).empty() ||
            !add_tree(e.id, definition, doomed))
            return false;
        keep_first_run.touch(pg::param(first), token_param(first), pg::param_time(now),
                             pg::param(e.run));
        return true;
    }
    return add_tree(e.id, definition, doomed) &&
           (e.latest_run == 0 || add_later_runs(definition.saga, e.key, e.latest_run, now, doomed));
}

/// A statement that finds what may go, and the same where Citus distributes the table.
struct Finding {
    pg::Select<ExpiredColumn> &locked, &here;
};

/// The search of one call.
struct Search {
    const Finding finding;
    const pg::Param ring_id;
    const std::span<const int32> slots;
    const pg::Param directions;
    const TimestampTz now;
    const TimestampTz until; ///< of the instants that the index is in the order of
    const int64 limit;       ///< of the sagas that it finds
    TimestampTz &from;
    std::optional<pg_uuid_t> first{}; ///< of those that were to be removed last
};

/// Removes the first sagas that are due, each with all that is removed with it.
Removed remove_first(Search &search, int64 wanted) {
    if (search.until <= search.from)
        return {};
    const bool is_locked = !pg::names_table_of_citus("stacksaga.saga");
    const auto rows = (is_locked ? search.finding.locked : search.finding.here)
                          .run(search.ring_id, pg::param_array(search.slots), search.directions,
                               pg::param_time(search.from), pg::param_time(search.until),
                               pg::param(search.limit), pg::param_time(search.now));
    Ids doomed;
    Removed removed{};
    search.first.reset();
    uint64 row = 0;
    for (; row < rows.count() && removed.found < wanted; ++row) {
        const size_t before = doomed.count();
        const std::optional<Expired> expired = read_expired(rows, row, is_locked);
        if (!expired || !add_all_runs(*expired, search.now, doomed)) {
            doomed.shrink(before);
            continue;
        }
        if (removed.found++ == 0)
            search.first = expired->id;
    }
    const bool is_all = row == rows.count();
    if (doomed.count() > 0)
        removed.rows = is_locked ? remove_together(doomed.from(0), search.now)
                                 : remove_one_by_one(doomed.from(0), search.now);
    fire_constraints(); // before the changes in memory, which no rollback undoes
    // Sagas that have to stay must not be found again and again, so the search skips them; the
    // skipped ones are tried again later.
    if (is_all && (static_cast<int64>(rows.count()) < search.limit || removed.rows == 0) &&
        !has_kept_rows("saga"))
        search.from = search.until;
    return removed;
}

int64 remove_found(Search search) {
    return remove_passing_over(
        "saga", search.now, search.limit,
        [&](int64 wanted) { return remove_first(search, wanted); },
        [&] {
            return search.first ? std::optional{std::string_view{uuid_text(*search.first)}}
                                : std::nullopt;
        });
}

/// The same where Citus distributes them: all that was kept since the same instant goes at once.
void forget_distributed(TimestampTz now, TimestampTz until, int64 limit, TimestampTz &from) {
    const pg::Param since = pg::param_time(from), end = pg::param_time(until);
    TimestampTz reached = from;
    std::optional<std::string_view> tried;
    const auto remove = [&](int64 wanted) -> Removed {
        const pg::Param kept = kept_keys("removed_saga", now);
        tried.reset();
        if (wanted == 1) {
            const pg::Rows rows = first_distributed_key.run(since, end, kept);
            if (rows.empty())
                return {};
            tried = uuid_text(rows.uuid(0));
            forget_distributed_key.touch(pg::param(rows.uuid(0)));
            return {.found = 1, .rows = 1};
        }
        const auto due = due_distributed_keys.run(since, end, kept, pg::param(wanted));
        const int64 found = due.int8(0, DueColumn::found);
        reached = until;
        if (found == 0)
            return {};
        const TimestampTz last = due.time(0, DueColumn::last);
        const auto gone = forget_distributed_keys.touch(since, pg::param_time(last), kept);
        if (found == wanted)
            reached = last;
        return {.found = found, .rows = static_cast<int64>(gone)};
    };
    static_cast<void>(
        remove_passing_over("removed_saga", now, limit, remove, [&] { return tried; }));
    if (!has_kept_rows("removed_saga"))
        from = reached;
}

/// Removes up to `limit` keys whose retention is over, the oldest first.
void forget_expired_keys(TimestampTz now, int64 limit, TimestampTz &from) {
    const TimestampTz until = forgotten_until(now);
    if (until <= from)
        return;
    if (pg::names_table_of_citus("stacksaga.removed_saga")) {
        forget_distributed(now, until, limit, from);
        return;
    }
    TimestampTz reached = from;
    const auto remove = [&](int64 wanted) {
        const auto rows = forget_first_keys.run(pg::param_time(from), pg::param_time(until),
                                                pg::param_time(now), pg::param(wanted));
        const int64 count = rows.int8(0, ForgottenColumn::keys);
        // Others may have been kept since the same instant.
        reached = count < wanted ? until : pg::time_plus(rows.time(0, ForgottenColumn::last), -1);
        return Removed{.found = count, .rows = count};
    };
    const auto first = [&]() -> std::optional<std::string_view> {
        const pg::Rows rows =
            first_due_key.run(pg::param_time(from), pg::param_time(until), pg::param_time(now));
        return rows.empty() ? std::nullopt : std::optional{rows.text(0)};
    };
    static_cast<void>(remove_passing_over("removed_saga", now, limit, remove, first));
    from = reached;
}

} // namespace

int64 remove_expired_sagas(int32 ring_id, std::span<const int32> slots, int64 limit,
                           RetentionMemory &memory) {
    const TimestampTz now = pg::clock_now();
    int64 removed = 0;
    const auto remove = [&](const Finding &finding, std::span<const std::string_view> directions,
                            TimestampTz until, TimestampTz &from) {
        removed += remove_found({.finding = finding,
                                 .ring_id = pg::param(ring_id),
                                 .slots = slots,
                                 .directions = pg::param_array(directions),
                                 .now = now,
                                 .until = until,
                                 .limit = std::max<int64>(limit - removed, 0),
                                 .from = from});
    };
    const Finding by_settings{find_and_lock, find_here};
    const Finding by_definition{find_and_lock_removable, find_removable_here};
    const std::span<const std::string_view> directions = core::direction_names;
    remove(by_definition, directions, now, memory.kept_from);
    memory.kept_from = std::min(memory.kept_from, pg::time_plus(now, -commit_time_us));
    remove(by_settings, directions.first(1), cutoff_of(core::Direction::act, now),
           memory.completed_from);
    forget_expired_keys(now, limit, memory.keys_from);
    remove(by_settings, directions.subspan(1), cutoff_of(core::Direction::compensate, now),
           memory.failed_from);
    return removed;
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
