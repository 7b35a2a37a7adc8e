// Whether a table is what its description says, so that it can be accessed directly.
//
// It is a plain local heap (permanent or unlogged), neither a partition nor a parent, not managed
// by Citus, without rules, row-level security, CHECKs and generated columns; it has exactly the
// columns of the description, exactly its indexes, all of them usable btrees of plain columns in
// their types' default order, and no triggers but those that the description names. Everything else
// that may change how a row is read or written shows in the relation cache, so the table is checked
// again after each invalidation of it.
//
// Less is needed to read it by an index: the described columns come first, and that index is there,
// valid and as described.
#include "pg/citus/citus.hpp"
#include "pg/compat.hpp"
#include "pg/statement/scope.hpp"
#include "pg/table/table_state.hpp"

namespace stacksaga::pg {

namespace {

bool is_described(std::span<const TableTrigger> triggers, const char *name) {
    return std::any_of(triggers.begin(), triggers.end(),
                       [&](const TableTrigger &t) { return strcmp(t.name, name) == 0; });
}

/// On a worker of Citus a table keeps the triggers that it had, and its shards have none.
bool fires(Relation heap, const char *name) {
    if (heap->trigdesc == nullptr || is_managed_by_citus(RelationGetRelid(heap)))
        return false;
    const std::span triggers{heap->trigdesc->triggers,
                             static_cast<size_t>(heap->trigdesc->numtriggers)};
    return std::any_of(triggers.begin(), triggers.end(), [&](const Trigger &t) {
        return strcmp(t.tgname, name) == 0 && t.tgenabled != TRIGGER_DISABLED;
    });
}

Oid type_of(const TableColumn &column) {
    if (column.own_type == nullptr)
        return column.type;
    return GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum(column.own_type),
                           ObjectIdGetDatum(get_namespace_oid("stacksaga", true)));
}

/// Compares the described columns, which come first.
const char *obstacle_in_columns(const TableDescription &description, TupleDesc columns) {
    const auto count = static_cast<int>(description.columns.size());
    if (columns->natts < count)
        return "it has other columns";
    for (int i = 0; i < count; ++i) {
        const Form_pg_attribute found = TupleDescAttr(columns, i);
        const TableColumn &expected = description.columns[static_cast<size_t>(i)];
        if (found->attisdropped || strcmp(NameStr(found->attname), expected.name) != 0)
            return "it has other columns";
        if (found->atttypid != type_of(expected) || found->atttypmod != -1)
            return "a column has another type";
        if (found->attnotnull != (expected.nulls == Nulls::refused))
            return "a column is, or is not, NOT NULL";
        const bool is_generated = found->attgenerated != '\0' || found->attidentity != '\0';
        if (is_generated && description.described == Described::whole)
            return "a column is generated";
    }
    return nullptr;
}

/// Whether somebody has added columns. One that was dropped again is null in every new row.
bool has_more_columns(const TableDescription &description, TupleDesc columns) {
    for (int i = static_cast<int>(description.columns.size()); i < columns->natts; ++i)
        if (!TupleDescAttr(columns, i)->attisdropped)
            return true;
    return false;
}

/// The mark of children stays for a while after the last one was dropped.
bool has_children(Relation heap) {
    return heap->rd_rel->relhassubclass &&
           find_inheritance_children(RelationGetRelid(heap), NoLock) != NIL;
}

const char *obstacle_to_reading(const TableDescription &description, Relation heap) {
    const Form_pg_class table = heap->rd_rel;
    if (table->relkind != RELKIND_RELATION || table->relam != HEAP_TABLE_AM_OID ||
        table->relpersistence == RELPERSISTENCE_TEMP)
        return "it is not a plain table";
    if (is_managed_by_citus(RelationGetRelid(heap)))
        return "Citus manages it";
    if (has_children(heap))
        return "it is a partition, or has children";
    return obstacle_in_columns(description, RelationGetDescr(heap));
}

const char *obstacle_in_heap(const TableDescription &description, Relation heap) {
    const Form_pg_class table = heap->rd_rel;
    if (table->relispartition)
        return "it is a partition, or has children";
    if (heap->rd_rules != nullptr)
        return "it has rules";
    if (table->relrowsecurity)
        return "it has row-level security";
    const TupleConstr *constraints = RelationGetDescr(heap)->constr;
    if (constraints != nullptr && constraints->num_check > 0)
        return "it has a CHECK";
    if (heap->trigdesc != nullptr)
        for (int i = 0; i < heap->trigdesc->numtriggers; ++i)
            if (!is_described(description.triggers, heap->trigdesc->triggers[i].tgname))
                return "it has a trigger";
    if (has_more_columns(description, RelationGetDescr(heap)))
        return "it has other columns";
    return nullptr;
}

/// As \d shows it; null for an index of all rows.
const char *predicate_of(Relation index) {
    HeapTuple tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(RelationGetRelid(index)));
    if (!HeapTupleIsValid(tuple))
        elog(ERROR, "cache lookup failed for index %u", RelationGetRelid(index));
    bool is_whole;
    const Datum tree = SysCacheGetAttr(INDEXRELID, tuple, Anum_pg_index_indpred, &is_whole);
    const char *predicate = nullptr;
    if (!is_whole)
        predicate = with_plain_names([&] {
            return TextDatumGetCString(DirectFunctionCall2(
                pg_get_expr, tree, ObjectIdGetDatum(index->rd_index->indrelid)));
        });
    ReleaseSysCache(tuple);
    return predicate;
}

bool has_predicate(Relation index, const char *expected) {
    const char *found = predicate_of(index);
    return expected == nullptr || found == nullptr ? expected == found
                                                   : strcmp(expected, found) == 0;
}

/// Whether column `i` of the index is column `expected` of the table, in the default order or in
/// that of its bytes.
bool has_key_column(Relation index, Relation heap, int i, uint8 expected, bool is_bytewise) {
    if (index->rd_index->indkey.values[i] != expected)
        return false;
    const Form_pg_attribute column = TupleDescAttr(RelationGetDescr(heap), expected - 1);
    if (index->rd_indoption[i] != 0 || index->rd_indcollation[i] != column->attcollation)
        return false;
    if (is_bytewise)
        return index->rd_opfamily[i] == TEXT_PATTERN_BTREE_FAM_OID;
    const Oid default_class = GetDefaultOpClass(column->atttypid, BTREE_AM_OID);
    return OidIsValid(default_class) && get_opclass_family(default_class) == index->rd_opfamily[i];
}

const char *obstacle_in_index(const TableIndex &expected, Relation index, Relation heap) {
    const Form_pg_index found = index->rd_index;
    if (index->rd_rel->relam != BTREE_AM_OID)
        return "an index is not a btree";
    if (!found->indisvalid || !found->indisready || !found->indislive)
        return "an index is not complete";
    if (found->indisunique != expected.is_unique || !found->indimmediate || found->indisexclusion ||
        !nulls_are_distinct(*found))
        return "an index enforces something else";
    if (static_cast<size_t>(found->indnatts) != expected.key.size ||
        found->indnkeyatts != found->indnatts)
        return "an index has other columns";
    for (size_t i = 0; i < expected.key.size; ++i)
        if (!has_key_column(index, heap, static_cast<int>(i), expected.key.columns[i],
                            expected.is_bytewise && i == 0))
            return "an index has other columns";
    if (!has_predicate(index, expected.predicate))
        return "an index has another predicate";
    return nullptr;
}

/// Whether snapshots of this transaction may be too old for the index (as get_relation_info() in
/// plancat.c).
bool is_too_new(Relation index) {
    return index->rd_index->indcheckxmin &&
           !TransactionIdPrecedes(HeapTupleHeaderGetXmin(index->rd_indextuple->t_data),
                                  TransactionXmin);
}

/// Looks the operators of the index up.
void remember(CheckedIndex &checked, Relation index) {
    for (int i = 0; i < index->rd_index->indnatts; ++i) {
        IndexColumn &column = checked.columns[static_cast<size_t>(i)];
        column.collation = index->rd_indcollation[i];
        for (StrategyNumber s = BTLessStrategyNumber; s <= BTMaxStrategyNumber; ++s) {
            const Oid type = index->rd_opcintype[i];
            const Oid compare = get_opcode(
                get_opfamily_member(index->rd_opfamily[i], type, type, static_cast<int16>(s)));
            fmgr_info_cxt(compare, &column.compare[s - 1u], TopMemoryContext);
        }
    }
}

/// Finds the description's index of that name.
std::optional<size_t> index_named(const TableDescription &description, const char *name) {
    for (size_t i = 0; i < description.indexes.size(); ++i)
        if (strcmp(description.indexes[i].name, name) == 0)
            return i;
    return std::nullopt;
}

/// Compares an index with the described one of its name.
void check_index(const TableIndex &expected, CheckedIndex &checked, Relation index, Relation heap) {
    checked.id = RelationGetRelid(index);
    checked.obstacle = obstacle_in_index(expected, index, heap);
    if (checked.obstacle != nullptr)
        return;
    remember(checked, index);
    checked.is_too_new = is_too_new(index);
}

/// Checks each index of the description; whether the table has others.
bool check_indexes(TableState &state, Relation heap) {
    const TableDescription &description = *state.description;
    for (size_t i = 0; i < description.indexes.size(); ++i) {
        state.indexes[i].id = InvalidOid;
        state.indexes[i].obstacle = "an index is missing";
        state.indexes[i].is_too_new = false;
    }
    List *ids = RelationGetIndexList(heap);
    const auto count = static_cast<size_t>(list_length(ids));
    // Kept at once, so that a change of any of them is noticed from here on.
    state.index_count = std::min(count, state.index_ids.size());
    for (size_t i = 0; i < state.index_count; ++i)
        state.index_ids[i] = list_nth_oid(ids, static_cast<int>(i));
    bool has_others = false;
    for (size_t i = 0; i < count; ++i) {
        Relation index = index_open(list_nth_oid(ids, static_cast<int>(i)), AccessShareLock);
        const std::optional<size_t> at = index_named(description, RelationGetRelationName(index));
        if (at)
            check_index(description.indexes[*at], state.indexes[*at], index, heap);
        has_others = has_others || !at;
        index_close(index, AccessShareLock);
    }
    list_free(ids);
    return has_others;
}

const char *obstacle_in_indexes(TableState &state, bool has_others) {
    if (has_others)
        return "it has other indexes";
    const std::span indexes{state.indexes, state.description->indexes.size()};
    for (const CheckedIndex &index : indexes) {
        if (index.obstacle != nullptr)
            return index.obstacle;
        if (index.is_too_new)
            return "an index is not complete";
    }
    return nullptr;
}

} // namespace

void check_table(TableState &state, Relation heap) {
    const uint64 before = state.changes; // the check itself may notice a change
    state.relation = RelationGetRelid(heap);
    state.index_count = 0;
    const std::span<const TableTrigger> triggers = state.description->triggers;
    Assert(triggers.size() <= table_triggers_max);
    for (size_t i = 0; i < triggers.size(); ++i)
        state.fires[i] = fires(heap, triggers[i].name);
    state.unreadable = obstacle_to_reading(*state.description, heap);
    state.obstacle =
        state.unreadable != nullptr ? state.unreadable : obstacle_in_heap(*state.description, heap);
    if (state.unreadable == nullptr) {
        const bool has_others = check_indexes(state, heap);
        if (state.obstacle == nullptr)
            state.obstacle = obstacle_in_indexes(state, has_others);
    }
    const std::span indexes{state.indexes, state.description->indexes.size()};
    if (std::any_of(indexes.begin(), indexes.end(),
                    [](const CheckedIndex &i) { return i.is_too_new; }))
        ++state.changes; // no invalidation says when it is old enough
    state.is_checked = state.changes == before;
}

} // namespace stacksaga::pg
