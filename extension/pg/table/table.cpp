#include "pg/table/table.hpp"

#include "pg/statement/function.hpp"
#include "pg/statement/scope.hpp"
#include "pg/table/table_state.hpp"

namespace stacksaga::pg {

namespace {

/// Some callers run with the privileges and the search_path of their own callers.
template <class F> auto as_extension(F &&by_sql) -> decltype(by_sql()) {
    return as_owner([&] { return with_pinned_path(static_cast<F &&>(by_sql)); });
}

/// Opens the table and runs one of two ways to do the same.
template <class D, class S>
auto with_table(Table &table, LOCKMODE mode, D &&directly, S &&by_sql) -> decltype(by_sql()) {
    // Makes rows that this transaction wrote before visible and changeable. The one at the end does
    // so for rows written now, also for readers that go another way.
    CommandCounterIncrement();
    OpenTable open = open_table(table, mode);
    auto result = open.is_direct() ? directly(open) : as_extension(by_sql);
    open.close();
    CommandCounterIncrement();
    return result;
}

const char *command_of(RowLock lock) {
    return lock == RowLock::update ? "SELECT FOR UPDATE" : "SELECT FOR NO KEY UPDATE";
}

/// A row that was read through SQL (its table has become plain since) has no place.
bool is_placed(const TableRow &row) {
    return ItemPointerIsValid(&row.place);
}

void require_types(const TableDescription &table, std::span<const Assignment> assignments) {
    for (const Assignment &a : assignments)
        if (a.value.type != table.columns[a.column - 1u].type)
            elog(ERROR, "column %s.%s is given a value of type %u", table.name,
                 table.columns[a.column - 1u].name, a.value.type);
}

} // namespace

std::string_view TableRow::text_of(Datum value) {
    return view_of_text(value);
}

void RowImage::assign(const TableDescription &table, std::span<const Assignment> assignments) {
    require_types(table, assignments);
    for (const Assignment &a : assignments) {
        values[a.column - 1u] = a.value.value;
        nulls[a.column - 1u] = a.value.isnull;
    }
}

void RowImage::require_complete(const TableDescription &table, Relation heap) const {
    for (size_t i = 0; i < table.columns.size(); ++i)
        if (nulls[i] && table.columns[i].nulls == Nulls::refused)
            ereport(ERROR,
                    (errcode(ERRCODE_NOT_NULL_VIOLATION),
                     errmsg("null value in column \"%s\" of relation \"%s\" violates not-null "
                            "constraint",
                            table.columns[i].name, table.name),
                     errtablecol(heap, static_cast<int>(i + 1))));
}

void require_writing(const char *command) {
    PreventCommandIfReadOnly(command);
    PreventCommandIfParallelMode(command);
    PreventCommandDuringRecovery(command);
}

void raise_concurrent_update() {
    ereport(ERROR, (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
                    errmsg("could not serialize access due to concurrent update")));
}

bool refuses_newer_versions(const TableDescription &table) {
    return IsolationUsesXactSnapshot() && table.newer_versions == NewerVersions::refused;
}

std::span<TableRow> Table::find(const TableScan &scan) {
    if (scan.lock != RowLock::none)
        require_writing(command_of(scan.lock));
    return with_table(
        *this, scan.lock == RowLock::none ? AccessShareLock : RowShareLock,
        [&](OpenTable &table) { return find_directly(table, scan); },
        [&] { return find_by_sql(state_of(*this), scan); });
}

std::optional<TableRow> Table::find_one(TableScan scan) {
    scan.limit = 1;
    const std::span<TableRow> rows = find(scan);
    return rows.empty() ? std::optional<TableRow>{} : rows[0];
}

void Table::insert(std::span<const Assignment> row) {
    insert_many({&row, 1});
}

void Table::insert_many(std::span<const std::span<const Assignment>> rows) {
    if (rows.empty())
        return;
    require_writing("INSERT");
    with_table(
        *this, RowExclusiveLock,
        [&](OpenTable &table) {
            insert_directly(table, rows);
            return true;
        },
        [&] {
            for (const std::span<const Assignment> row : rows)
                insert_by_sql(state_of(*this), row);
            return true;
        });
}

bool Table::insert_visible(std::span<const Assignment> row) {
    require_writing("INSERT");
    return with_table(
        *this, RowExclusiveLock,
        [&](OpenTable &table) {
            insert_visible_directly(table, row);
            return true;
        },
        [&] {
            insert_by_sql(state_of(*this), row);
            return false;
        });
}

bool Table::insert_if_absent(std::span<const Assignment> row, KnownRow known) {
    require_writing("INSERT");
    return with_table(
        *this, RowExclusiveLock,
        [&](OpenTable &table) { return insert_if_absent_directly(table, row, known); },
        [&] { return insert_if_absent_by_sql(state_of(*this), row); });
}

bool Table::update(TableRow &row, std::span<const Assignment> changes) {
    require_writing("UPDATE");
    return with_table(
        *this, RowExclusiveLock,
        [&](OpenTable &table) {
            return is_placed(row)
                       ? update_directly(table, row, changes)
                       : as_extension([&] { return update_by_sql(table.state, row, changes); });
        },
        [&] { return update_by_sql(state_of(*this), row, changes); });
}

bool Table::remove(const TableRow &row) {
    require_writing("DELETE");
    return with_table(
        *this, RowExclusiveLock,
        [&](OpenTable &table) {
            return is_placed(row) ? remove_directly(table, row)
                                  : as_extension([&] { return remove_by_sql(table.state, row); });
        },
        [&] { return remove_by_sql(state_of(*this), row); });
}

bool Table::lock_for_write() {
    require_writing("INSERT");
    OpenTable open = open_table(*this, RowExclusiveLock);
    open.close();
    return open.is_direct();
}

bool Table::has_no_pages() {
    OpenTable open = open_table(*this, AccessShareLock);
    const bool result = open.is_direct() && RelationGetNumberOfBlocks(open.heap) == 0;
    open.close();
    return result;
}

const char *Table::obstacle() {
    OpenTable open = open_table(*this, AccessShareLock);
    open.close();
    return open.state.obstacle;
}

const char *Table::unreadable(size_t index) {
    OpenTable open = open_table(*this, AccessShareLock);
    open.close();
    return open.unreadable(index);
}

} // namespace stacksaga::pg
