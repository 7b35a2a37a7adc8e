#include "src/saga/set_aside.hpp"

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

enum class AsideColumn : uint8_t { saga_id, token };
#define SELECT_ASIDE "SELECT saga_id, token FROM stacksaga.work WHERE paused_saga = $1"
constinit pg::Select<AsideColumn> select_of_queue{
    SELECT_ASIDE " AND ring_id = $2 AND queue = $3 ORDER BY resume_at LIMIT $4",
    pg::Reads::this_node};
constinit pg::Select<AsideColumn> select_of_workers{
    SELECT_ASIDE " AND ring_id = $2 AND queue IS NULL ORDER BY resume_at LIMIT $3",
    pg::Reads::this_node};
constinit pg::Select<AsideColumn> select_any{
    SELECT_ASIDE " ORDER BY ring_id, queue, resume_at LIMIT $2", pg::Reads::this_node};
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
            count += bring_back_steps(rows.uuid(i, AsideColumn::saga_id),
                                      rows.int8(i, AsideColumn::token), pause.saga);
        }
    }
    return count;
}

} // namespace

int32 bring_back(int32 ring_id, std::optional<std::string_view> queue, int32 limit,
                 TimestampTz now) {
    return bring_back_of_each(limit, now, [&](pg::Param saga, int64 wanted) {
        return queue ? select_of_queue.run(saga, pg::param(ring_id), pg::param(*queue),
                                           pg::param(wanted))
                     : select_of_workers.run(saga, pg::param(ring_id), pg::param(wanted));
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
