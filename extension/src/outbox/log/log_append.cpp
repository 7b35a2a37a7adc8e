// Appending to the log: forms rows and inserts them into the table and its indexes directly, as
// COPY does. An INSERT that is planned already costs twice as much, most of it for an executor that
// has nothing to decide.
//
// This does without the executor's other work: rows are NOT NULL and in the right partition by
// construction, there are no defaults, and triggers, checks and unexpected columns are refused. All
// indexes get their entries, also those that a user added.
#include "src/outbox/log/log_append.hpp"

#include "core/outbox/partition.hpp"

#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/statement/scope.hpp"
#include "src/outbox/log/log_lock.hpp"
#include "src/outbox/log/log_table.hpp"
#include "src/outbox/log/log_tick.hpp"

namespace stacksaga {

namespace {

// Rows of one multi-insert: those of a page share a record of WAL.
constexpr size_t rows_at_once = 256;

// Readers do not care which of the generations is filled, so a value of this age is good enough.
// Reading the sequence keeps other sessions from it for a moment.
constexpr int64 generation_known_us = 100 * 1000;

struct KnownGeneration {
    Oid sequence = InvalidOid; // not known yet
    int64 asked_at;
    size_t generation;
};
constinit KnownGeneration known{};

size_t current_generation() {
    const Oid sequence = log_sequences().generation;
    const int64 now = pg::steady_now();
    if (known.sequence != sequence || now - known.asked_at > generation_known_us)
        known = {.sequence = sequence,
                 .asked_at = now,
                 .generation = static_cast<size_t>(last_value_of(sequence) % generations)};
    return known.generation;
}

/// A dump may hold a tick that was made after it had read the sequence. What is published where it
/// was restored must have numbers above those that the tick knows: readers look for it there.
void catch_up_numbers(Oid sequence) {
    static constinit Oid caught_up = InvalidOid;
    if (caught_up == sequence)
        return;
    pg::as_owner([&] {
        const auto is_behind = [&] { return last_value_of(sequence) < last_number_of_ticks(); };
        if (is_behind()) {
            lock_ticking(true);
            if (is_behind())
                DirectFunctionCall2(setval_oid, ObjectIdGetDatum(sequence),
                                    Int64GetDatum(last_number_of_ticks()));
            unlock_ticking();
        }
    });
    caught_up = sequence;
}

/// Refuses a table that was changed so that rows cannot be appended to it directly.
void require_plain(Relation table) {
    const char *name = RelationGetRelationName(table);
    if (table->trigdesc != nullptr)
        ereport(ERROR,
                (errcode(pg::sg409), errmsg("table \"%s\" has a trigger", name),
                 errdetail("Messages are appended to the log without firing triggers."),
                 errhint("Drop the trigger, and create a subscription with a handler instead.")));
    const TupleDesc columns = RelationGetDescr(table);
    for (int i = log_columns; i < columns->natts; ++i)
        if (!TupleDescAttr(columns, i)->attisdropped)
            ereport(ERROR,
                    (errcode(pg::sg409), errmsg("table \"%s\" has an unexpected column", name),
                     errdetail("Messages are appended to the log without a value for \"%s\".",
                               NameStr(TupleDescAttr(columns, i)->attname)),
                     errhint("Drop the column, and use headers instead.")));
    if (columns->constr != nullptr && columns->constr->num_check > 0)
        ereport(ERROR,
                (errcode(pg::sg409), errmsg("table \"%s\" has a check constraint", name),
                 errdetail("Messages are appended to the log without checking \"%s\".",
                           columns->constr->check[0].ccname),
                 errhint("Drop the constraint, and check messages before you publish them.")));
}

/// Whether an index that a user added calls functions, which must not find names of the caller of
/// publish().
bool calls_functions(const ResultRelInfo &target) {
    return std::any_of(
        target.ri_IndexRelationInfo, target.ri_IndexRelationInfo + target.ri_NumIndices,
        [](const IndexInfo *i) { return i->ii_Expressions != NIL || i->ii_Predicate != NIL; });
}

using Slots = std::array<TupleTableSlot *, rows_at_once>;

/// The slots in the order in which their rows are stored: by stripe, as readers read them, so that
/// the rows of a stripe share pages of the table and of its indexes. The rows of a stripe, and so
/// of a key, stay in their order.
Slots by_stripe(std::span<const NewRow> rows, const Slots &slots) {
    std::array<size_t, core::log_stripes + 1> next{}; // where the next one of a stripe goes
    for (const NewRow &row : rows)
        ++next[static_cast<size_t>(core::stripe_of(row.token)) + 1];
    for (size_t i = 1; i < next.size(); ++i)
        next[i] += next[i - 1];
    Slots sorted{};
    for (size_t i = 0; i < rows.size(); ++i)
        sorted[next[static_cast<size_t>(core::stripe_of(rows[i].token))]++] = slots[i];
    return sorted;
}

/// A table of the log that is being appended to. After an error the resource owner closes it.
struct Appending {
    Relation table;
    Oid numbers;
    int16 generation;
    int32 ring_id;
    TimestampTz now;
    int64 transaction_id;
    EState *state;
    ResultRelInfo *target;

    void fill(TupleTableSlot *slot, const NewRow &row) const {
        auto set = [&](LogColumn column, Datum value, bool isnull = false) {
            const auto i = static_cast<size_t>(column) - 1;
            slot->tts_values[i] = value;
            slot->tts_isnull[i] = isnull;
        };
        ExecClearTuple(slot);
        set(LogColumn::number, Int64GetDatum(nextval_internal(numbers, false)));
        set(LogColumn::transaction_id, Int64GetDatum(transaction_id));
        set(LogColumn::origin, Int64GetDatum(static_cast<int64>(GetSystemIdentifier())));
        set(LogColumn::token, Int64GetDatum(row.token.value()));
        set(LogColumn::published_at, TimestampTzGetDatum(now));
        set(LogColumn::ring_id, Int32GetDatum(ring_id));
        set(LogColumn::generation, Int16GetDatum(generation));
        set(LogColumn::stripe, Int16GetDatum(core::stripe_of(row.token)));
        set(LogColumn::message_id, UUIDPGetDatum(&row.id));
        set(LogColumn::topic, row.topic);
        set(LogColumn::key, row.key, row.key == 0);
        set(LogColumn::type, row.type, row.type == 0);
        set(LogColumn::payload, row.payload, row.payload == 0);
        set(LogColumn::headers, row.headers);
        set(LogColumn::deliver_at, TimestampTzGetDatum(row.deliver_at.value_or(0)),
            !row.deliver_at.has_value());
        for (int i = log_columns; i < slot->tts_tupleDescriptor->natts; ++i)
            slot->tts_isnull[i] = true; // dropped
        ExecStoreVirtualTuple(slot);
    }

    void index(std::span<TupleTableSlot *> slots) const {
        for (TupleTableSlot *slot : slots)
            pg::insert_into_indexes(target, slot, state);
    }

    void append(std::span<TupleTableSlot *> slots) const {
        const CommandId command = GetCurrentCommandId(true);
        MemoryContext caller = MemoryContextSwitchTo(GetPerTupleMemoryContext(state));
        if (slots.size() == 1)
            table_tuple_insert(table, slots[0], command, 0, nullptr);
        else
            table_multi_insert(table, slots.data(), static_cast<int>(slots.size()), command, 0,
                               nullptr);
        CRASH_POINT("log: row written, not in its index");
        if (calls_functions(*target))
            pg::with_pinned_path([&] { index(slots); });
        else
            index(slots);
        MemoryContextSwitchTo(caller);
        ResetPerTupleExprContext(state);
    }
};

} // namespace

void forget_generation() {
    known.sequence = InvalidOid;
}

void append_to_log(int32 ring_id, TimestampTz now, std::span<const NewRow> rows) {
    PreventCommandIfReadOnly("publish()");
    const size_t generation = current_generation();
    Relation table = log_tables[generation].open(RowExclusiveLock);
    require_plain(table);
    catch_up_numbers(log_sequences().number);
    Appending appending{
        .table = table,
        .numbers = log_sequences().number,
        .generation = static_cast<int16>(generation),
        .ring_id = ring_id,
        .now = now,
        // Ticks rely on it that the transaction has its id before it takes a number.
        .transaction_id = static_cast<int64>(U64FromFullTransactionId(GetTopFullTransactionId())),
        .state = CreateExecutorState(),
        .target = makeNode(ResultRelInfo)};
    InitResultRelInfo(appending.target, table, 0, nullptr, 0);
    ExecOpenIndices(appending.target, false);
    Slots slots{};
    for (size_t i = 0; i < std::min(rows.size(), rows_at_once); ++i)
        slots[i] = table_slot_create(table, &appending.state->es_tupleTable);
    for (size_t done = 0; done < rows.size(); done += rows_at_once) {
        CHECK_FOR_INTERRUPTS();
        const auto some = rows.subspan(done, std::min(rows.size() - done, rows_at_once));
        for (size_t i = 0; i < some.size(); ++i)
            appending.fill(slots[i], some[i]);
        Slots sorted = by_stripe(some, slots);
        appending.append({sorted.data(), some.size()});
    }
    CRASH_POINT("log: message appended");
    ExecResetTupleTable(appending.state->es_tupleTable, false);
    ExecCloseIndices(appending.target);
    FreeExecutorState(appending.state);
    table_close(table, NoLock);
    CommandCounterIncrement();
}

} // namespace stacksaga
