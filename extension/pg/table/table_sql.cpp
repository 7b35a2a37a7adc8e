// The operations of a Table through SQL, which is made from its description: for a table that
// somebody has changed so that it cannot be accessed directly. Rows are known by their primary key.
#include "pg/citus/shard_lock.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/scope.hpp"
#include "pg/table/table_state.hpp"

namespace stacksaga::pg {

/// A statement that has been used, and whose plan is kept.
struct SqlText {
    SqlText *next;
    const char *text;
    Statement statement;
};

namespace {

Statement &statement_of(TableState &table, const char *text) {
    for (SqlText *known = table.statements; known != nullptr; known = known->next)
        if (strcmp(known->text, text) == 0)
            return known->statement;
    const char *kept = MemoryContextStrdup(TopMemoryContext, text);
    void *room = MemoryContextAlloc(TopMemoryContext, sizeof(SqlText));
    table.statements = new (room) SqlText{table.statements, kept, Statement(kept)};
    return table.statements->statement;
}

/// A statement in the making, with its parameters.
class Sql {
public:
    explicit Sql(TableState &table) : table_(table) { initStringInfo(&text_); }

    void add(const char *text) { appendStringInfoString(&text_, text); }
    void add_name(const TableColumn &column) { add(quote_identifier(column.name)); }
    void add_table() {
        appendStringInfo(&text_, "stacksaga.%s", quote_identifier(description().name));
    }

    /// The names of all columns.
    void add_columns() {
        for (size_t i = 0; i < description().columns.size(); ++i) {
            add(i == 0 ? "" : ", ");
            add_name(description().columns[i]);
        }
    }

    void add_value(const TableColumn &column, const Param &value) {
        add_parameter(parameter(column, value));
        if (column.own_type != nullptr)
            appendStringInfo(&text_, "::stacksaga.%s", quote_identifier(column.own_type));
    }

    void add_limit(uint64 limit) {
        add(" LIMIT ");
        add_parameter(param(static_cast<int64>(limit)));
    }

    /// COLUMN OPERATOR VALUE. Of the types of schema stacksaga only ring_token, which stands for a
    /// bigint, has operators of its own.
    void add_comparison(uint8 number, const char *name, const Param &value) {
        const TableColumn &column = description().columns[number - 1u];
        const bool has_own = column.own_type != nullptr && column.type == INT8OID;
        add_name(column);
        appendStringInfo(&text_, " OPERATOR(%s.%s) ", has_own ? "stacksaga" : "pg_catalog", name);
        add_value(column, value);
    }

    /// Restricts to the row with the primary key of `row`.
    void add_where(const TableRow &row) {
        const IndexKey &key = description().indexes[0].key;
        for (size_t i = 0; i < key.size; ++i) {
            const size_t at = key.columns[i] - 1u;
            add(i == 0 ? " WHERE " : " AND ");
            add_comparison(key.columns[i], "=",
                           param_datum(description().columns[at].type, row.values[at]));
        }
    }

    Rows run() { return statement_of(table_, text_.data).run_with(parameters()); }
    Rows run_as_own() { return statement_of(table_, text_.data).run_as_own(parameters()); }

private:
    const TableDescription &description() const { return *table_.description; }
    std::span<const Param> parameters() const { return std::span(params_).first(count_); }

    void add_parameter(const Param &value) {
        if (count_ == params_.size())
            elog(ERROR, "too many values for a statement on %s", description().name);
        params_[count_++] = value;
        appendStringInfo(&text_, "$%zu", count_);
    }

    /// Plans outlive the types of the extension, so their parameters have PostgreSQL's own.
    static Param parameter(const TableColumn &column, const Param &value) {
        if (column.type != ANYENUMOID)
            return value;
        if (value.isnull)
            return param_null(TEXTOID);
        return param(std::string_view(OidOutputFunctionCall(F_ENUM_OUT, value.value)));
    }

    TableState &table_;
    StringInfoData text_;
    std::array<Param, table_columns_max> params_{};
    size_t count_ = 0;
};
static_assert(std::is_trivially_destructible_v<Sql>);

void add_search(Sql &sql, const TableDescription &table, const TableScan &scan) {
    const TableIndex &index = table.indexes[scan.index];
    const char *separator = " WHERE ";
    auto add = [&](size_t column, const char *name, const Param &value) {
        sql.add(std::exchange(separator, " AND "));
        sql.add_comparison(index.key.columns[column], name, value);
    };
    for (size_t i = 0; i < scan.key.size(); ++i)
        add(i, "=", scan.key[i]);
    if (scan.lower)
        add(scan.key.size(), scan.lower->is_inclusive ? ">=" : ">", scan.lower->value);
    if (scan.upper)
        add(scan.key.size(), scan.upper->is_inclusive ? "<=" : "<", scan.upper->value);
    if (index.predicate != nullptr) {
        sql.add(std::exchange(separator, " AND "));
        sql.add(index.predicate);
    }
    if (scan.implied) {
        sql.add(separator);
        sql.add_comparison(scan.implied->column, "=", scan.implied->value);
    }
    sql.add(" ORDER BY ");
    for (size_t i = 0; i < index.key.size; ++i) {
        sql.add(i == 0 ? "" : ", ");
        sql.add_name(table.columns[index.key.columns[i] - 1u]);
    }
    if (scan.limit != 0)
        sql.add_limit(scan.limit);
}

/// The token of all rows of a scan that names it.
std::optional<int64> token_of(const TableDescription &table, const TableScan &scan) {
    const auto is_token = [&](uint8 column) {
        const char *type = table.columns[column - 1u].own_type;
        return type != nullptr && std::string_view{type} == "ring_token";
    };
    if (scan.implied && is_token(scan.implied->column))
        return DatumGetInt64(scan.implied->value.value);
    for (size_t i = 0; i < scan.key.size(); ++i)
        if (is_token(table.indexes[scan.index].key.columns[i]))
            return DatumGetInt64(scan.key[i].value);
    return std::nullopt;
}

void add_lock(Sql &sql, RowLock lock, IfLocked if_locked) {
    if (lock == RowLock::none)
        return;
    sql.add(lock == RowLock::update ? " FOR UPDATE" : " FOR NO KEY UPDATE");
    if (if_locked == IfLocked::skip)
        sql.add(" SKIP LOCKED");
}

/// Raises 40001 where the transaction's snapshot sees another version of a row that is locked, or
/// none.
void require_in_snapshot(TableState &table, const TableRow &row, RowLock lock) {
    Sql sql(table);
    sql.add("SELECT 1 FROM ");
    sql.add_table();
    sql.add_where(row);
    add_lock(sql, lock, IfLocked::wait);
    if (sql.run_as_own().empty())
        raise_concurrent_update();
}

void add_insert(Sql &sql, const TableDescription &table, std::span<const Assignment> row) {
    sql.add("INSERT INTO ");
    sql.add_table();
    sql.add(" (");
    sql.add_columns();
    sql.add(") VALUES (");
    RowImage image;
    image.nulls.fill(true);
    image.assign(table, row);
    for (size_t i = 0; i < table.columns.size(); ++i) {
        sql.add(i == 0 ? "" : ", ");
        if (image.nulls[i])
            sql.add("NULL");
        else
            sql.add_value(table.columns[i], param_datum(table.columns[i].type, image.values[i]));
    }
    sql.add(")");
}

void require_one(const TableDescription &table, uint64 written) {
    if (written != 1)
        elog(ERROR, "a row of %s was not written: a trigger or a rule has kept it back",
             table.name);
}

std::optional<TableRow> lock_by_key(TableState &table, const TableRow &row, RowLock lock) {
    const IndexKey &key = table.description->indexes[0].key;
    std::array<Param, index_columns_max> values;
    for (size_t i = 0; i < key.size; ++i) {
        const size_t at = key.columns[i] - 1u;
        values[i] = param_datum(table.description->columns[at].type, row.values[at]);
    }
    const std::span<TableRow> found =
        find_by_sql(table, {.key = std::span(values).first(key.size), .limit = 1, .lock = lock});
    return found.empty() ? std::optional<TableRow>{} : found[0];
}

bool is_same(const TableDescription &table, const TableRow &one, const TableRow &other) {
    for (size_t i = 0; i < table.columns.size(); ++i) {
        if (one.nulls[i] != other.nulls[i])
            return false;
        const Oid type = table.columns[i].type;
        int16 length;
        bool by_value;
        get_typlenbyval(type, &length, &by_value);
        if (!one.nulls[i] && !datum_image_eq(one.values[i], other.values[i], by_value, length))
            return false;
    }
    return true;
}

/// Locks a row that was not; whether it is still as it was read.
bool lock_unchanged(TableState &table, const TableRow &row, RowLock lock) {
    if (row.is_locked)
        return true;
    const std::optional<TableRow> now = lock_by_key(table, row, lock);
    const bool is_unchanged = now && is_same(*table.description, row, *now);
    if (!is_unchanged && refuses_newer_versions(*table.description))
        raise_concurrent_update();
    return is_unchanged;
}

/// Does what triggers would do that are not there: Citus distributes no table that has some.
void stand_in_for_triggers(const TableState &table, const TableRow &row,
                           std::span<const Assignment> changes) {
    const TableDescription &description = *table.description;
    for (size_t i = 0; i < description.triggers.size(); ++i) {
        if (table.fires[i] || description.triggers[i].before_update == nullptr)
            continue;
        RowImage image;
        std::copy(row.values.begin(), row.values.end(), image.values.begin());
        std::copy(row.nulls.begin(), row.nulls.end(), image.nulls.begin());
        image.assign(description, changes);
        description.triggers[i].before_update(row, image.row(description));
    }
}

} // namespace

std::span<TableRow> find_by_sql(TableState &table, const TableScan &scan) {
    MemoryContext caller = CurrentMemoryContext;
    return with_spi([&]() -> std::span<TableRow> {
        if (const std::optional<int64> token = token_of(*table.description, scan))
            hold_shard(table.relation, *token);
        Sql sql(table);
        sql.add("SELECT ");
        sql.add_columns();
        sql.add(" FROM ");
        sql.add_table();
        add_search(sql, *table.description, scan);
        add_lock(sql, scan.lock, scan.if_locked);
        const uint64 count = sql.run().count();
        SPITupleTable *found = SPI_tuptable;
        std::span<TableRow> rows = in_context(caller, [&]() -> std::span<TableRow> {
            auto *copies = static_cast<TableRow *>(
                palloc(sizeof(TableRow) * static_cast<size_t>(std::max<uint64>(count, 1))));
            for (uint64 i = 0; i < count; ++i) {
                copies[i] =
                    make_row(*table.description, heap_copytuple(found->vals[i]), found->tupdesc);
                copies[i].is_locked = scan.lock != RowLock::none;
            }
            return {copies, static_cast<size_t>(count)};
        });
        if (scan.lock != RowLock::none && refuses_newer_versions(*table.description))
            for (const TableRow &row : rows)
                require_in_snapshot(table, row, scan.lock);
        return rows;
    });
}

void insert_by_sql(TableState &table, std::span<const Assignment> row) {
    with_spi([&] {
        Sql sql(table);
        add_insert(sql, *table.description, row);
        require_one(*table.description, sql.run().count());
    });
}

bool insert_if_absent_by_sql(TableState &table, std::span<const Assignment> row) {
    return with_spi([&] {
        Sql sql(table);
        add_insert(sql, *table.description, row);
        sql.add(" ON CONFLICT (");
        const IndexKey &key = table.description->indexes[0].key;
        for (size_t i = 0; i < key.size; ++i) {
            sql.add(i == 0 ? "" : ", ");
            sql.add_name(table.description->columns[key.columns[i] - 1u]);
        }
        sql.add(") DO NOTHING");
        const Rows inserted = table.description->newer_versions == NewerVersions::refused
                                  ? sql.run_as_own()
                                  : sql.run();
        return inserted.count() == 1;
    });
}

bool update_by_sql(TableState &table, TableRow &row, std::span<const Assignment> changes) {
    if (!lock_unchanged(table, row, RowLock::no_key_update))
        return false;
    stand_in_for_triggers(table, row, changes);
    with_spi([&] {
        Sql sql(table);
        sql.add("UPDATE ");
        sql.add_table();
        const char *separator = " SET ";
        for (const Assignment &change : changes) {
            const TableColumn &column = table.description->columns[change.column - 1u];
            sql.add(std::exchange(separator, ", "));
            sql.add_name(column);
            sql.add(" = ");
            sql.add_value(column, change.value);
        }
        sql.add_where(row);
        require_one(*table.description, sql.run().count());
    });
    for (const Assignment &change : changes) {
        row.values[change.column - 1u] = change.value.value;
        row.nulls[change.column - 1u] = change.value.isnull;
    }
    ItemPointerSetInvalid(&row.place);
    return true;
}

bool remove_by_sql(TableState &table, const TableRow &row) {
    if (!lock_unchanged(table, row, RowLock::update))
        return false;
    with_spi([&] {
        Sql sql(table);
        sql.add("DELETE FROM ");
        sql.add_table();
        sql.add_where(row);
        require_one(*table.description, sql.run().count());
    });
    return true;
}

} // namespace stacksaga::pg
