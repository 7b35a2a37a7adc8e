// Opening the relations of a Table: for one operation, or for a batch.
#include "pg/statement/scope.hpp"
#include "pg/table/relation_change.hpp"
#include "pg/table/table_state.hpp"

namespace stacksaga::pg {

namespace {

constinit TableState *known_tables = nullptr;

bool concerns(const TableState &table, Oid relation) {
    const auto indexes = std::span(table.index_ids).first(table.index_count);
    return !OidIsValid(relation) || relation == table.relation ||
           std::find(indexes.begin(), indexes.end(), relation) != indexes.end();
}

void note_change(Datum, Oid relation) {
    for (TableState *table = known_tables; table != nullptr; table = table->next)
        if (concerns(*table, relation)) {
            table->is_checked = false;
            ++table->changes;
        }
}

void forget_kept(TableState &table) {
    table.kept_heap = nullptr;
    table.kept_indexes.fill(nullptr);
}

void forget_all_kept() {
    for (TableState *table = known_tables; table != nullptr; table = table->next)
        forget_kept(*table);
}

void forget_kept_in(const Subtransaction &ended) {
    for (TableState *table = known_tables; table != nullptr; table = table->next)
        if (table->kept_heap != nullptr && table->kept_in == ended.id)
            forget_kept(*table);
}

void watch() {
    static constinit bool is_watching = false;
    if (is_watching)
        return;
    watch_relations(note_change);
    is_watching = true;
}

Oid find_relation(const TableDescription &description) {
    const Oid schema = get_namespace_oid("stacksaga", true);
    const Oid id = OidIsValid(schema) ? get_relname_relid(description.name, schema) : InvalidOid;
    if (!OidIsValid(id))
        ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
                        errmsg("relation \"stacksaga.%s\" does not exist", description.name)));
    return id;
}

/// Locks the table, which may be replaced meanwhile (as RangeVarGetRelidExtended in namespace.c).
Relation lock_and_open(TableState &state, LOCKMODE mode) {
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        const Oid id = state.is_checked ? state.relation : find_relation(*state.description);
        LockRelationOid(id, mode); // takes note of changes
        if (state.is_checked ? id == state.relation : id == find_relation(*state.description))
            return table_open(id, NoLock);
        UnlockRelationOid(id, mode);
    }
}

} // namespace

constinit const TransactionUser table_events{
    .at_end = forget_all_kept,
    .at_rollback = forget_kept_in,
};

TableState &state_of(Table &table) {
    if (table.state_ != nullptr)
        return *table.state_;
    watch();
    const TableDescription &description = table.description();
    Assert(description.columns.size() <= table_columns_max &&
           description.indexes.size() <= table_indexes_max);
    return *in_context(TopMemoryContext, [&] {
        auto *state = static_cast<TableState *>(palloc0(sizeof(TableState)));
        state->description = &description;
        state->indexes =
            static_cast<CheckedIndex *>(palloc0(sizeof(CheckedIndex) * description.indexes.size()));
        state->next = std::exchange(known_tables, state);
        return table.state_ = state;
    });
}

OpenTable open_table(Table &table, LOCKMODE mode) {
    TableState &state = state_of(table);
    Relation heap = state.kept_heap != nullptr ? state.kept_heap : lock_and_open(state, mode);
    // Expressions are compared as text, in which names depend on the path.
    if (!state.is_checked)
        with_pinned_path([&] { check_table(state, heap); });
    return {.state = state, .heap = heap, .mode = mode};
}

Relation Table::open(LOCKMODE mode) {
    return open_table(*this, mode).heap;
}

Relation OpenTable::index(size_t i) {
    Relation &kept = state.kept_indexes[i];
    if (kept != nullptr && RelationGetRelid(kept) == state.indexes[i].id)
        return kept;
    // Relations that a subtransaction of the keeper's opens are closed with it.
    if (kept == nullptr && state.kept_heap != nullptr && state.kept_by == CurrentResourceOwner)
        return kept = index_open(state.indexes[i].id, RowExclusiveLock);
    if (indexes[i] == nullptr)
        indexes[i] = index_open(state.indexes[i].id, mode);
    return indexes[i];
}

/// A reader gives up the locks of the indexes. REINDEX TABLE takes the table's lock first, which
/// keeps writers out, and then that of each index: a transaction that has read would keep it from
/// an index, and then wait for it in order to write.
void OpenTable::close() {
    for (Relation &index : indexes)
        if (index != nullptr)
            index_close(std::exchange(index, nullptr),
                        mode == AccessShareLock ? AccessShareLock : NoLock);
    if (heap != state.kept_heap)
        table_close(heap, NoLock);
}

bool Table::keep_open(KeptIndexes indexes) {
    if (state_of(*this).kept_heap != nullptr)
        return false;
    OpenTable open = open_table(*this, RowExclusiveLock);
    state_->kept_heap = open.heap;
    state_->kept_in = GetCurrentSubTransactionId();
    state_->kept_by = CurrentResourceOwner;
    if (indexes == KeptIndexes::all && open.is_direct())
        for (size_t i = 0; i < description_.indexes.size(); ++i)
            static_cast<void>(open.index(i));
    return true;
}

void Table::release() {
    OpenTable open{.state = *state_, .heap = state_->kept_heap, .mode = RowExclusiveLock};
    open.indexes = state_->kept_indexes;
    forget_kept(*state_);
    open.close();
}

} // namespace stacksaga::pg
