#include "src/outbox/log/log_tick.hpp"

#include "core/outbox/snapshot_window.hpp"

#include "pg/clock.hpp"
#include "pg/crash_point.hpp"
#include "pg/settings.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "pg/table/lookup.hpp"
#include "src/outbox/log/log_lock.hpp"
#include "src/outbox/log/log_table.hpp"
#include "src/outbox/outbox_tables.hpp"

namespace stacksaga {

namespace {

enum class LoadedColumn : uint8_t { tick, number_before, number_after, origin, snapshot };
constinit pg::Select<LoadedColumn> read_ticks{
    "SELECT tick, number_before, number_after, origin, snapshot::text FROM stacksaga.outbox_tick"
    " WHERE tick >= $1 ORDER BY tick LIMIT $2"};
constinit pg::Statement find_last{
    "SELECT tick FROM stacksaga.outbox_tick ORDER BY tick DESC LIMIT 1"};
constinit pg::Statement find_before{
    "SELECT tick FROM stacksaga.outbox_tick WHERE tick < $1 ORDER BY tick DESC LIMIT 1"};
constinit pg::Statement have_subscriptions{"SELECT FROM stacksaga.subscription LIMIT 1"};
constinit pg::Statement read_snapshot{"SELECT pg_catalog.pg_current_snapshot()::text"};

constexpr const char *channel = "stacksaga_outbox";

uint64 *make_ids(size_t count) {
    return static_cast<uint64 *>(palloc_extended(sizeof(uint64) * count, MCXT_ALLOC_HUGE));
}

int64 this_origin() {
    return static_cast<int64>(GetSystemIdentifier());
}

/// PostgreSQL's snapshot ends its list at the last transaction that has ended. Those with later ids
/// are running as well, and must be listed: they may have taken numbers.
core::Snapshot name_all_running(const core::Snapshot &snapshot, uint64 next) {
    if (next <= snapshot.xmax)
        return snapshot;
    uint64 *ids = make_ids(snapshot.running.size() + (next - snapshot.xmax));
    uint64 *end = std::copy(snapshot.running.begin(), snapshot.running.end(), ids);
    for (uint64 xid = snapshot.xmax; xid < next; ++xid)
        *end++ = xid;
    return {snapshot.xmin, next, {ids, static_cast<size_t>(end - ids)}};
}

pg::Param snapshot_param(const core::Snapshot &snapshot) {
    return pg::param_datum(
        PG_SNAPSHOTOID,
        DirectFunctionCall1(pg_snapshot_in, CStringGetDatum(snapshot_text(snapshot))));
}

/// Whether messages that `last` does not see, up to number `before`, may be visible now.
bool is_due(const core::Tick &last, int64 before, const core::Snapshot &now) {
    if (before > last.before || (last.tick > 0 && last.origin != this_origin()))
        return true;
    uint64 *ended = make_ids(last.snapshot.running.size() + 1);
    size_t count = 0;
    for (uint64 xid : last.snapshot.running)
        if (now.sees(xid))
            ended[count++] = xid;
    return have_published({ended, count});
}

constinit int64 notified = 0; ///< the last tick that this process has notified of

void notify(int64 tick) {
    if (pg::settings.notify)
        Async_Notify(channel, psprintf(INT64_FORMAT, tick));
    notified = tick;
}

/// A tick says nothing of the transaction that makes it, so others see it at once. `is_visible` is
/// false when they see it after the commit.
Ticking tick(bool is_ours, bool &is_visible) {
    const int64 last_number = last_tick(); // after the lock
    const core::Tick last = load_ticks(last_number)[0];
    const int64 before = last_message_number();
    const core::Snapshot snapshot = current_snapshot();
    if (!is_due(last, before, snapshot))
        return Ticking::not_due;
    if (!is_ours)
        return Ticking::elsewhere;
    CRASH_POINT("tick: locked, not written");
    using Column = TickColumn;
    is_visible = tick_table.insert_visible(
        std::array{pg::assign(Column::tick, pg::param(last_number + 1)),
                   pg::assign(Column::number_before, pg::param(before)),
                   pg::assign(Column::number_after, pg::param(last_message_number())),
                   pg::assign(Column::origin, pg::param(this_origin())),
                   pg::assign(Column::ticked_at, pg::param_time(pg::clock_now())),
                   pg::assign(Column::snapshot, snapshot_param(snapshot))});
    CRASH_POINT("tick: written");
    notify(last_number + 1);
    return Ticking::done;
}

constinit bool is_wanted_at_commit = false;

void tick_before_commit() {
    if (!is_wanted_at_commit || XactReadOnly)
        return;
    is_wanted_at_commit = false;
    PushActiveSnapshot(GetTransactionSnapshot());
    // The function that asked for the tick has returned, and no longer pins the search_path.
    pg::with_pinned_path([] { pg::as_owner([] { pg::with_spi([] { tick_if_due(); }); }); });
    PopActiveSnapshot();
}

} // namespace

constinit const pg::TransactionUser tick_events{
    .before_commit = tick_before_commit,
    .at_end = [] { is_wanted_at_commit = false; },
};

int64 last_message_number() {
    return last_value_of(log_sequences().number);
}

int64 last_tick() {
    pg::Rows rows = find_last.run();
    return rows.empty() ? 0 : rows.int8(0);
}

int64 last_number_of_ticks() {
    int64 number = 0;
    (void)pg::try_index<BackwardScanDirection>(
        tick_table, TickIndex::primary_key, [&](pg::IndexReader &reader) {
            reader.seek({});
            bool is_null;
            if (TupleTableSlot *row = reader.next(); row != nullptr)
                number = DatumGetInt64(
                    slot_getattr(row, pg::column_number(TickColumn::number_after), &is_null));
        });
    return number;
}

void notify_again() {
    const int64 last = pg::settings.notify ? last_tick() : notified;
    if (last != notified)
        notify(last);
}

int64 tick_before(int64 tick) {
    pg::Rows rows = find_before.run(pg::param(tick));
    return rows.empty() ? 0 : rows.int8(0);
}

const char *snapshot_text(const core::Snapshot &snapshot) {
    StringInfoData text;
    initStringInfo(&text);
    appendStringInfo(&text, UINT64_FORMAT ":" UINT64_FORMAT ":", snapshot.xmin, snapshot.xmax);
    for (size_t i = 0; i < snapshot.running.size(); ++i)
        appendStringInfo(&text, "%s" UINT64_FORMAT, i == 0 ? "" : ",", snapshot.running[i]);
    return text.data;
}

core::Snapshot snapshot_of_text(std::string_view text) {
    const size_t size = core::snapshot_ids_max(text);
    std::optional<core::Snapshot> snapshot = core::parse_snapshot(text, {make_ids(size), size});
    if (!snapshot)
        elog(ERROR, "cannot read the snapshot of a tick");
    return *snapshot;
}

core::Snapshot current_snapshot() {
    // In this order: a transaction that gets its id after the first line takes its number after it,
    // too.
    const uint64 next = U64FromFullTransactionId(ReadNextFullTransactionId());
    core::Snapshot snapshot = name_all_running(snapshot_of_text(read_snapshot.run().text(0)), next);
    const FullTransactionId own = GetTopFullTransactionIdIfAny();
    if (!FullTransactionIdIsValid(own))
        return snapshot;
    const size_t size = snapshot.running.size() + 1;
    return core::with_running(snapshot, U64FromFullTransactionId(own), {make_ids(size), size});
}

std::span<const core::Tick> find_ticks(int64 from) {
    using Column = LoadedColumn;
    const auto rows = read_ticks.run(pg::param(from), pg::param(static_cast<int32>(ticks_at_once)));
    auto *ticks = static_cast<core::Tick *>(palloc(sizeof(core::Tick) * (rows.count() + 1)));
    size_t count = 0;
    if (from == 0)
        ticks[count++] = core::Tick{};
    else if (rows.empty() || rows.int8(0, Column::tick) != from)
        return {};
    for (uint64 i = 0; i < rows.count(); ++i)
        ticks[count++] = {.tick = rows.int8(i, Column::tick),
                          .before = rows.int8(i, Column::number_before),
                          .after = rows.int8(i, Column::number_after),
                          .origin = rows.int8(i, Column::origin),
                          .snapshot = snapshot_of_text(rows.text(i, Column::snapshot))};
    return {ticks, count};
}

std::span<const core::Tick> load_ticks(int64 from) {
    const std::span<const core::Tick> ticks = find_ticks(from);
    if (ticks.empty())
        elog(ERROR, "tick " INT64_FORMAT " of the outbox is gone", from);
    return ticks;
}

std::span<const core::Tick> LoadedTicks::from(int64 tick) {
    const bool are_all = !ticks_.empty() && ticks_.size() < ticks_at_once;
    const auto begin = std::find_if(ticks_.begin(), ticks_.end(),
                                    [&](const core::Tick &t) { return t.tick == tick; });
    if (!are_all || begin == ticks_.end())
        return ticks_ = find_ticks(tick);
    return {begin, ticks_.end()};
}

Ticking tick_if_due() {
    if (have_subscriptions.run().empty())
        return Ticking::not_due;
    const bool is_ours = lock_ticking(false);
    bool is_visible = true;
    const Ticking ticking = tick(is_ours, is_visible);
    // The caller's statement may take long: others make the next tick meanwhile.
    if (is_ours && is_visible)
        unlock_ticking();
    return ticking;
}

Ticking tick_soon() {
    if (!IsTransactionBlock())
        return tick_if_due();
    is_wanted_at_commit = true;
    return Ticking::not_due;
}

} // namespace stacksaga
