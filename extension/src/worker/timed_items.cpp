#include "src/worker/timed_items.hpp"

#include "core/queue/claim_order.hpp"
#include "core/ring/token.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/work_purpose.hpp"

#include "pg/citus/shard_lock.hpp"
#include "pg/clock.hpp"
#include "pg/statement/attempt.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "pg/statement/transaction.hpp"
#include "src/common/extension_lock.hpp"
#include "src/common/loop_guard.hpp"
#include "src/ring/fence.hpp"
#include "src/saga/postpone.hpp"
#include "src/work/item_search.hpp"
#include "src/work/work_rows.hpp"

namespace stacksaga {

namespace {

constexpr int64 items_max = 256; // of one search
constexpr int lock_timeout_ms = 100;
constexpr int64 time_max_us = USECS_PER_SEC / 4;
constexpr int64 shortest_rest_us = USECS_PER_SEC / 4;
// A search passes over the steps that wait for a worker, so it takes at most a fifth of the time.
constexpr int64 rest_per_search = 4;

// A step that neither is claimed nor waits for its verify function calls a function if it is sql.
#define FIND_TIMED(OF_ITS_RANK)                                                                    \
    "SELECT w.saga_id, w.slot, w.purpose::text, w.step_no, w.direction, w.attempt"                 \
    "  FROM (SELECT slot FROM stacksaga.slot WHERE ring_id = $1"                                   \
    "           AND (owner = $2 OR owner IN ("                                                     \
    "                SELECT incarnation FROM stacksaga.node WHERE pid IS NULL))) AS s, LATERAL ("  \
    "       SELECT saga_id, token, slot, purpose, step_no, direction, attempt, lease_until,"       \
    "              verifying"                                                                      \
    "         FROM stacksaga.work w"                                                               \
    "        WHERE w.ring_id = $1 AND w.slot = s.slot AND w.due_at <= $3" OF_ITS_RANK              \
    "        ORDER BY w.due_at) AS w"                                                              \
    " WHERE w.purpose <> 'step' OR w.lease_until IS NOT NULL"                                      \
    "    OR NOT w.verifying AND (SELECT d.kind FROM stacksaga.saga a"                              \
    "                              JOIN stacksaga.definition_step d"                               \
    "                                ON d.definition_id = a.definition_id"                         \
    "                             WHERE a.saga_id = w.saga_id"                                     \
    "                               AND a.token OPERATOR(stacksaga.=) w.token"                     \
    "                               AND d.step_no = w.step_no) <> 'sql'"                           \
    " LIMIT $4"
enum class TimedColumn : uint8_t { saga_id, slot, purpose, step_no, direction, attempt };
constinit pg::Select<TimedColumn> find_usual{FIND_TIMED(IS_OF_USUAL_RANK), pg::Reads::this_node};
constinit pg::Select<TimedColumn> find_of_rank{FIND_TIMED(IS_OF_RANK("$5")), pg::Reads::this_node};

struct TimedItems {
    DueItem *list;
    size_t count;
};

void add(TimedItems &items, const pg::RowsOf<TimedColumn> &rows) {
    for (uint64 row = 0; row < rows.count() && items.count < items_max; ++row)
        items.list[items.count++] = {
            .saga_id = rows.uuid(row, TimedColumn::saga_id),
            .slot = rows.int4(row, TimedColumn::slot),
            .purpose = *core::work_purpose_of(rows.text(row, TimedColumn::purpose)),
            .step_no = rows.int2(row, TimedColumn::step_no),
            .direction = *core::direction_of(rows.text(row, TimedColumn::direction)),
            .attempt = rows.int4(row, TimedColumn::attempt)};
}

/// Searches rank by rank, as workers do.
TimedItems find(const NodeIdentity &node, MemoryContext memory) {
    TimedItems items{
        .list = static_cast<DueItem *>(MemoryContextAlloc(memory, sizeof(DueItem) * items_max)),
        .count = 0};
    pg::in_transaction([&] {
        require_extension();
        pg::with_spi([&] {
            const pg::Param ring = pg::param(node.ring_id), owner = pg::param(node.incarnation),
                            now = pg::param_time(pg::clock_now()), limit = pg::param(items_max);
            const uint32 ranks = ranks_for_workers(node.ring_id);
            for (int16 rank = 0; rank <= core::lowest_rank; ++rank)
                if (rank == core::usual_rank)
                    add(items, find_usual.run(ring, owner, now, limit));
                else if ((ranks & (1U << rank)) != 0)
                    add(items, find_of_rank.run(ring, owner, now, limit, pg::param(rank)));
        });
    });
    return items;
}

/// In a transaction whose slot is locked and owned.
bool run_in_slot(const NodeIdentity &node, std::string_view name, const DueItem &item) {
    bool is_owned = false;
    lock_slots(node, {&item.slot, 1}, {&is_owned, 1});
    if (!is_owned)
        return false;
    pg::hold_shard("saga", core::token_of_uuid(item.saga_id.data).value());
    return run_without_handler(item, name);
}

/// After a failure: tries the item once more, to know the error, and settles it or makes it due
/// later.
void settle_failed(const NodeIdentity &node, std::string_view name, const DueItem &item) {
    HandlerError error{};
    const bool is_done = pg::attempt_expecting(
        [&](const ErrorData &caught) {
            if (is_of_session(caught))
                return false;
            error = read_handler_error();
            return true;
        },
        [&] { (void)run_in_slot(node, name, item); });
    if (is_done)
        return;
    if (!error.is_unfit)
        postpone_item(item);
    else
        (void)settle_unfit(item, name, error);
}

/// Whether it was done. It is not when its saga or a row that it needs is locked, for example by
/// the handler.
bool run_one(const NodeIdentity &node, std::string_view name, const DueItem &item) {
    static constinit LoopGuard guard{};
    bool is_done = false;
    const auto in_transaction = [](auto &&body) {
        pg::in_transaction([&] {
            require_extension();
            pg::attempt(lock_timeout_ms, [&] { pg::with_spi(body); });
        });
    };
    const bool is_fine = guard.guard([&] {
        in_transaction([&] { is_done = run_in_slot(node, name, item); });
        return true;
    });
    if (!is_fine)
        guard.guard([&] {
            in_transaction([&] { settle_failed(node, name, item); });
            return false; // its error is in the log once
        });
    return is_fine && is_done;
}

} // namespace

int64 run_timed_items(const NodeIdentity &node, std::string_view name, MemoryContext memory) {
    const int64 begun = pg::steady_now();
    for (;;) {
        const int64 searched = pg::steady_now();
        const TimedItems items = find(node, memory);
        const int64 found = pg::steady_now();
        bool has_done_any = false;
        for (size_t i = 0; i < items.count; ++i)
            has_done_any = run_one(node, name, items.list[i]) || has_done_any;
        if (!has_done_any || pg::steady_now() - begun > time_max_us)
            return std::max(shortest_rest_us, rest_per_search * (found - searched));
    }
}

} // namespace stacksaga
