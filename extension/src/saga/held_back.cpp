#include "src/saga/held_back.hpp"

#include "core/ring/murmur3.hpp"
#include "core/saga/saga_state.hpp"

#include "pg/citus/citus.hpp"
#include "pg/crash_point.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/select.hpp"
#include "src/common/wake.hpp"
#include "src/definition/definition_pauses.hpp"
#include "src/queue/queue_waiters.hpp"
#include "src/saga/saga_tables.hpp"
#include "src/work/work_table.hpp"

namespace stacksaga {

namespace {

using pg::assign;

enum class HeldColumn : uint8_t { saga_id, token };
#define SELECT_HELD "SELECT saga_id, token FROM stacksaga.work WHERE paused_saga = $1"
constinit pg::Select<HeldColumn> select_of_queue{
    SELECT_HELD " AND ring_id = $2 AND queue = $3 ORDER BY resume_at LIMIT $4",
    pg::Reads::this_node};
constinit pg::Select<HeldColumn> select_any{
    SELECT_HELD " ORDER BY ring_id, queue, resume_at LIMIT $2", pg::Reads::this_node};
enum class DueColumn : uint8_t { saga_id, created_at };
constinit pg::Select<DueColumn> lock_page{
    "SELECT saga_id, created_at FROM stacksaga.saga"
    " WHERE status = $1::stacksaga.saga_status AND definition_id = $2"
    "   AND (created_at, saga_id) > ($3, $4) ORDER BY created_at, saga_id LIMIT $5"
    " FOR NO KEY UPDATE SKIP LOCKED"};
// What core/saga/saga.cpp holds back of such sagas for the pause alone.
constinit pg::Statement hold_page_back{
    "UPDATE stacksaga.work AS w SET resume_at = w.due_at, due_at = 'infinity', paused_saga = $3"
    "  FROM stacksaga.definition_step AS d"
    " WHERE w.saga_id = ANY ($1) AND d.definition_id = $2 AND d.step_no = w.step_no"
    "   AND w.purpose = 'step' AND w.direction = 'act' AND w.lease_until IS NULL"
    "   AND NOT w.verifying AND w.resume_at IS NULL AND w.due_at < 'infinity'"
    "   AND (w.queue IS NOT NULL OR d.kind IN ('sql', 'message', 'child')) RETURNING 1"};
constinit pg::Statement select_versions{
    "SELECT definition_id FROM stacksaga.saga_definition WHERE saga = $1 ORDER BY version"};
constinit pg::Statement exists{"SELECT EXISTS (SELECT FROM stacksaga.work WHERE paused_saga = $1)"};
constinit pg::Statement remove_pause{
    "DELETE FROM stacksaga.definition_pause WHERE saga = $1 AND paused_until <= $2 RETURNING 1"};

/// Locks the saga, and makes due what the pause alone held back of it. Returns how many rows.
int32 bring_back_steps(const pg_uuid_t &id, int64 token, std::string_view saga) {
    const std::array saga_key{pg::param(id), pg::param(token)};
    if (!saga_table.find_one(
            {.key = saga_key, .lock = pg::RowLock::no_key_update, .if_locked = pg::IfLocked::skip}))
        return 0;
    int32 count = 0;
    for (pg::TableRow &row : work_table.find({.key = std::array{pg::param(id)},
                             .implied = assign(WorkColumn::token, pg::param(token))})) {
        if (row.optional_text(WorkColumn::paused_saga) != saga)
            continue;
        const TimestampTz due_at = row.time(WorkColumn::resume_at);
        const std::optional<std::string_view> queue = row.optional_text(WorkColumn::queue);
        if (queue)
            wake_waiters_at_commit(row.int4(WorkColumn::ring_id), *queue);
        else
            wake_workers_at_commit(due_at);
        work_table.update(row,
                          std::array{assign(WorkColumn::due_at, pg::param_time(due_at)),
                                     assign(WorkColumn::resume_at, pg::param_null(TIMESTAMPTZOID)),
                                     assign(WorkColumn::paused_saga, pg::param_null(TEXTOID))});
        CRASH_POINT("pause: step brought back");
        ++count;
    }
    return count;
}

/// A copy, since the list of pauses may be read again meanwhile.
std::span<const DefinitionPause> copy_of_pauses() {
    const std::span<const DefinitionPause> pauses = definition_pauses();
    auto *copy = static_cast<DefinitionPause *>(
        palloc(sizeof(DefinitionPause) * std::max<size_t>(1, pauses.size())));
    for (size_t i = 0; i < pauses.size(); ++i)
        copy[i] = {
            .saga = {pnstrdup(pauses[i].saga.data(), pauses[i].saga.size()), pauses[i].saga.size()},
            .since = pauses[i].since,
            .until = pauses[i].until};
    return {copy, pauses.size()};
}

template <class F> int32 bring_back_of_each(int32 limit, TimestampTz now, F &&select) {
    int32 count = 0;
    if (!is_any_pause_over(now))
        return 0;
    for (const DefinitionPause &pause : copy_of_pauses()) {
        if (!pause.is_over(now) || count >= limit)
            continue;
        const auto rows = select(pg::param(pause.saga), int64{limit - count});
        for (uint64 i = 0; i < rows.count(); ++i) {
            CHECK_FOR_INTERRUPTS();
            count += bring_back_steps(rows.uuid(i, HeldColumn::saga_id),
                                      rows.int8(i, HeldColumn::token), pause.saga);
        }
    }
    return count;
}

/// How far this session has gone through the sagas of a pause: by version, then by status.
struct Walk {
    uint64 pause = 0; ///< 0: of none
    uint64 part = 0;  ///< two of each version
    TimestampTz created_at = DT_NOBEGIN;
    pg_uuid_t saga_id{};
};
constinit Walk walk{};
/// The latest pauses that it has gone through.
constinit std::array<uint64, 64> walked{};
constinit size_t walked_count = 0;

uint64 number_of(const DefinitionPause &pause) {
    return core::murmur3_x64_128(pause.saga, 0).h1 ^ static_cast<uint64>(pause.since);
}

bool has_walked(const DefinitionPause &pause) {
    return std::find(walked.begin(), walked.end(), number_of(pause)) != walked.end();
}

/// Goes on with the next page. False: there is none.
bool walk_on(const DefinitionPause &pause, int32 limit) {
    constexpr std::array parts{core::Status::pending, core::Status::running};
    const pg::Rows versions = select_versions.run(pg::param(pause.saga));
    const uint64 version = walk.part / parts.size();
    if (version >= versions.count())
        return false;
    const pg::Param definition = pg::param(versions.int4(version));
    const auto rows = lock_page.run(pg::param(core::name_of(parts[walk.part % parts.size()])),
                                    definition, pg::param_time(walk.created_at),
                                    pg::param(walk.saga_id), pg::param(int64{limit}));
    const uint64 count = rows.count();
    auto *ids = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t) * std::max<uint64>(1, count)));
    for (uint64 i = 0; i < count; ++i)
        ids[i] = rows.uuid(i, DueColumn::saga_id);
    if (count < static_cast<uint64>(limit)) {
        ++walk.part;
        walk.created_at = DT_NOBEGIN;
        walk.saga_id = {};
    } else {
        walk.created_at = rows.time(count - 1, DueColumn::created_at);
        walk.saga_id = ids[count - 1];
    }
    if (count > 0)
        hold_page_back.touch(pg::param_array(std::span<const pg_uuid_t>{ids, count}), definition,
                             pg::param(pause.saga));
    return true;
}

} // namespace

bool hold_page_back_of_pause(int32 limit, TimestampTz now) {
    if (definition_pauses().empty() || saga_table.obstacle() != nullptr ||
        work_table.obstacle() != nullptr)
        return false;
    for (const DefinitionPause &pause : copy_of_pauses()) {
        if (pause.is_over(now) || has_walked(pause) || !may_hold_back(pause.saga, now))
            continue;
        if (walk.pause != number_of(pause))
            walk = {.pause = number_of(pause)};
        if (walk_on(pause, limit))
            return true;
        walked[walked_count++ % walked.size()] = number_of(pause);
        walk = {};
    }
    return false;
}

int32 bring_back(int32 ring_id, std::string_view queue, int32 limit, TimestampTz now) {
    return bring_back_of_each(limit, now, [&](pg::Param saga, int64 wanted) {
        return select_of_queue.run(saga, pg::param(ring_id), pg::param(queue), pg::param(wanted));
    });
}

int32 bring_back_all(int32 limit, TimestampTz now) {
    return bring_back_of_each(limit, now, [](pg::Param saga, int64 wanted) {
        return select_any.run(saga, pg::param(wanted));
    });
}

bool is_any_pause_over(TimestampTz now) {
    const std::span<const DefinitionPause> pauses = definition_pauses();
    return std::any_of(pauses.begin(), pauses.end(),
                       [&](const DefinitionPause &pause) { return pause.is_over(now); });
}

void forget_pauses(TimestampTz now) {
    // The lock keeps out sessions of this node alone: on Citus the row stays for the next pause.
    if (pg::is_citus_loaded())
        return;
    for (const DefinitionPause &pause : copy_of_pauses())
        if (pause.is_over(now) && lock_end_of_pause(pause.saga) &&
            !exists.run(pg::param(pause.saga)).boolean(0) &&
            remove_pause.touch(pg::param(pause.saga), pg::param_time(now)) > 0)
            announce_pauses();
}

} // namespace stacksaga
