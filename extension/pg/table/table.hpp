// The extension's own tables, read and written without planner and executor: index scans and tuple
// operations named in code.
//
// A Table is a constinit static that describes a table: its columns, its indexes, the triggers
// whose work its users do themselves. At its first use in a session, and after each change of it
// that the session notices, the table is compared with its description (table_check.cpp says how).
// If it is what the description says, its operations go straight to the heap and to the indexes. If
// not (a trigger, an index, a column that somebody added; a partitioned or distributed table), the
// same operations go through SQL that is made from the description. Callers write each operation
// once:
//
//   enum class Column : uint8 { ring_id = 1, name, weight };
//   constexpr pg::TableColumn columns[]{{"ring_id", INT4OID}, {"name", TEXTOID},
//                                       {"weight", FLOAT8OID, pg::Nulls::allowed}};
//   constexpr pg::TableIndex indexes[]{
//       {.name = "node_pkey", .key = {Column::ring_id, Column::name}, .is_unique = true}};
//   constinit pg::Table node{{.name = "node", .columns = columns, .indexes = indexes}};
//
//   const std::array key{pg::param(ring_id), pg::param(name)};
//   std::optional<pg::TableRow> row = node.find_one({.key = key, .lock = pg::RowLock::update});
//   if (row)
//       node.update(*row, std::array{pg::assign(Column::weight, pg::param(2.0))});
//
// True of both ways:
// - Reads see what is committed now and what this transaction has written, whatever its isolation
//   level, as Statement::run() does. What a row points to lives in the memory context that was
//   current when it was read.
// - A lock follows an updated row to its latest version, and looks at the key again there.
// - Under REPEATABLE READ and above, a row to be locked or changed whose latest version the
//   transaction's snapshot does not see raises 40001: otherwise the transaction would see the old
//   version beside its own. A table that is read through this file alone may say otherwise
//   (NewerVersions).
// - A duplicate key raises 23505, a null in a column that has none 23502. Read-only transactions,
//   recovery and parallel mode are refused as PostgreSQL refuses them.
// - No privileges are checked: SQL runs as the extension's owner, with PostgreSQL's own names in
//   sight alone.
// Defaults, CHECKs of domains, and the triggers that the description names do not run when the
// access is direct: callers give all values, and only valid ones, and the description says what is
// done in a trigger's place.
//
// Not to be used in a read-only SPI query or a STABLE function: an operation advances the command
// counter so that the transaction sees what it has written.
#pragma once
#include "pg/pg.hpp"
#include "pg/statement/query.hpp"
#include "pg/transaction_events.hpp"

namespace stacksaga::pg {

inline constexpr size_t table_columns_max = 32; ///< as many parameters as a statement has
inline constexpr size_t table_indexes_max = 9;
inline constexpr size_t table_triggers_max = 2;
inline constexpr size_t index_columns_max = 6;

/// An enum of a table's columns counts from 1, as PostgreSQL does.
template <class C> constexpr uint8 column_number(C column) {
    static_assert(std::is_enum_v<C>);
    return static_cast<uint8>(column);
}

enum class Nulls : uint8 { refused, allowed };

/// How a read treats a value that lies in TOAST.
enum class Toasted : uint8 {
    fetched,
    left, ///< its users fetch it, while the row is there: values that few of them look at
};

struct TableColumn {
    const char *name;
    /// Its type; of a column with `own_type` the type of parameters for it: INT8OID for ring_token,
    /// the base type of a domain, ANYENUMOID for an enum.
    Oid type;
    Nulls nulls = Nulls::refused;
    /// The name of its type where that is one of schema stacksaga.
    const char *own_type = nullptr;
    Toasted toasted = Toasted::fetched;
};

/// Columns of an index, in its order.
struct IndexKey {
    template <class... C>
    // NOLINTNEXTLINE(google-explicit-constructor): a braced list of columns is a key
    constexpr IndexKey(C... key) : columns{column_number(key)...}, size(sizeof...(C)) {
        static_assert(sizeof...(C) > 0 && sizeof...(C) <= index_columns_max);
    }
    std::array<uint8, index_columns_max> columns;
    size_t size;
};

class TableRow;

extern const TransactionUser table_events; ///< forgets what keep_open() keeps

struct TableIndex {
    const char *name;
    IndexKey key;
    bool is_unique = false;
    bool is_bytewise = false; ///< its first column, a text, has text_pattern_ops
    /// Of a partial index: its predicate as pg_get_expr() prints it, and the same in code.
    const char *predicate = nullptr;
    bool (*holds)(const TableRow &row) = nullptr;
};

/// A trigger that may be there. Direct access does not fire it, but does this itself; so does SQL
/// where it does not fire.
struct TableTrigger {
    const char *name;
    /// Before a row is changed; it may raise an error. Null: nothing is to be done.
    void (*before_update)(const TableRow &before, const TableRow &after) = nullptr;
};

/// How a write treats under REPEATABLE READ and above to a row that was written after the
/// transaction's snapshot was taken.
enum class NewerVersions : uint8 {
    refused, ///< 40001
    used,    ///< it is locked and changed like any other: no query of users reads the table
};

/// How much of a table its description names.
enum class Described : uint8 {
    whole,        ///< all columns and indexes
    what_is_read, ///< its first columns and some indexes. It is only read by them, and what else
                  ///< somebody has added to the table does not matter
};

struct TableDescription {
    const char *name; ///< in schema stacksaga
    std::span<const TableColumn> columns;
    std::span<const TableIndex> indexes; ///< all of them; the first one is the primary key
    std::span<const TableTrigger> triggers{};
    NewerVersions newer_versions = NewerVersions::refused;
    Described described = Described::whole;
};

/// A row. Its values are in the table's order.
class TableRow {
public:
    TableRow(std::span<Datum> all_values, std::span<bool> all_nulls)
        : values(all_values), nulls(all_nulls) {}

    template <class C> bool is_null(C column) const { return nulls[at(column)]; }
    /// The value of a column that is not null in this row (elog otherwise).
    template <class C> Datum value(C column) const {
        if (is_null(column))
            elog(ERROR, "unexpected null in column %d", column_number(column));
        return values[at(column)];
    }
    template <class C> int16 int2(C column) const { return DatumGetInt16(value(column)); }
    template <class C> int32 int4(C column) const { return DatumGetInt32(value(column)); }
    template <class C> int64 int8(C column) const { return DatumGetInt64(value(column)); }
    template <class C> bool boolean(C column) const { return DatumGetBool(value(column)); }
    template <class C> TimestampTz time(C column) const {
        return DatumGetTimestampTz(value(column));
    }
    template <class C> pg_uuid_t uuid(C column) const { return *DatumGetUUIDP(value(column)); }
    template <class C> std::string_view text(C column) const { return text_of(value(column)); }
    template <class C> std::optional<Datum> optional(C column) const {
        return is_null(column) ? std::optional<Datum>{} : values[at(column)];
    }
    template <class C> std::optional<int16> optional_int2(C column) const {
        return is_null(column) ? std::optional<int16>{} : int2(column);
    }
    template <class C> std::optional<int64> optional_int8(C column) const {
        return is_null(column) ? std::optional<int64>{} : int8(column);
    }
    template <class C> std::optional<TimestampTz> optional_time(C column) const {
        return is_null(column) ? std::optional<TimestampTz>{} : time(column);
    }
    template <class C> std::optional<std::string_view> optional_text(C column) const {
        return is_null(column) ? std::optional<std::string_view>{} : text(column);
    }

    // For pg/table*.cpp alone.
    std::span<Datum> values;
    std::span<bool> nulls;
    ItemPointerData place{}; ///< of its version; not valid when it was read through SQL
    bool is_locked = false;  ///< by this transaction, so that nobody else changes it

private:
    template <class C> static size_t at(C column) { return size_t{column_number(column)} - 1; }
    static std::string_view text_of(Datum value);
};
static_assert(std::is_trivially_destructible_v<TableRow>);

/// A value for a column.
struct Assignment {
    uint8 column;
    Param value;
};
template <class C> Assignment assign(C column, Param value) {
    return {column_number(column), value};
}

enum class RowLock : uint8 {
    none,
    no_key_update, ///< FOR NO KEY UPDATE: before an update that leaves all unique keys as they are
    update,        ///< FOR UPDATE: before a delete
};
enum class IfLocked : uint8 {
    wait,
    skip, ///< SKIP LOCKED
};

/// Knowledge of the caller of insert_if_absent() about a row with the same key.
enum class KnownRow : uint8 {
    maybe, ///< nothing; if it is there, nothing is written
    no,    ///< find() has just shown none; if it is there by now, a dead row is left behind
};

/// A bound of a range; a row with a null in the column is outside of every range.
struct Bound {
    Param value;
    bool is_inclusive;
};

/// Rows in the order of an index.
struct TableScan {
    size_t index = 0;             ///< which one of the description
    std::span<const Param> key{}; ///< what its first columns equal
    std::optional<Bound> lower{}; ///< of the column after those
    std::optional<Bound> upper{};
    /// A value that the key implies, as an id implies its token: of the SQL alone, which then reads
    /// the one partition or shard that has such rows.
    std::optional<Assignment> implied{};
    uint64 limit =
        0; ///< 0: all of them. Rows that are skipped because they are locked do not count
    RowLock lock = RowLock::none;
    IfLocked if_locked = IfLocked::wait;
};

struct TableState; // table_state.hpp

/// Which indexes Table::keep_open() opens: those that are used, at their first use outside of a
/// subtransaction; or all at once, for a batch whose items are subtransactions.
enum class KeptIndexes : uint8_t { used, all };

class Table {
public:
    constexpr explicit Table(const TableDescription &description) : description_(description) {}

    const TableDescription &description() const { return description_; }

    std::span<TableRow> find(const TableScan &scan);

    /// The first row of a scan.
    std::optional<TableRow> find_one(TableScan scan);

    /// Columns that are not assigned are null.
    void insert(std::span<const Assignment> row);

    /// A row that is true whatever becomes of this transaction: everybody sees it at once, and it
    /// stays when the transaction is rolled back. False where the access goes through SQL, so that
    /// the row is seen after the commit.
    bool insert_visible(std::span<const Assignment> row);

    /// Rows that share pages share records of WAL.
    void insert_many(std::span<const std::span<const Assignment>> rows);

    /// INSERT ... ON CONFLICT (primary key) DO NOTHING: false when there is such a row. Waits for a
    /// transaction that is inserting it or deleting it.
    bool insert_if_absent(std::span<const Assignment> row, KnownRow known = KnownRow::maybe);

    /// Changes a row that find() returned. False when it was not locked and somebody else has
    /// changed it since, or this transaction has. Such a row may be used only while the snapshot
    /// that was active at its reading still is. `row` becomes the new version.
    bool update(TableRow &row, std::span<const Assignment> changes);

    /// The same for a delete.
    bool remove(const TableRow &row);

    /// Takes the table's lock for a write that follows later in this transaction: until then nobody
    /// adds a trigger or an index that changes how it is done. False when it goes through SQL.
    bool lock_for_write();

    /// Whether the table has no page, and so no row of anybody: costs a tenth of a search. False
    /// where the access goes through SQL.
    bool has_no_pages();

    /// Why the table cannot be accessed directly; null if it can.
    const char *obstacle();

    /// Why an index of the description cannot be read directly; null if it can.
    const char *unreadable(size_t index);

    /// Locks the table and then opens it, by the name that it has under the lock.
    Relation open(LOCKMODE mode);

    /// Keeps the table and its indexes open until release(), under the lock of a writer; false if
    /// they are kept open already.
    bool keep_open(KeptIndexes indexes);
    void release();

private:
    TableDescription description_;
    TableState *state_ = nullptr; ///< what the session knows of it
    friend TableState &state_of(Table &table);
};
static_assert(std::is_trivially_destructible_v<Table>);

/// Keeps tables open while `body` runs, which reads and writes few of their rows: opening them for
/// each operation takes about as long as reading a row. After an error the server's abort closes
/// them.
template <size_t n, class F>
auto with_tables(const std::array<Table *, n> &tables, F &&body) -> decltype(body()) {
    std::array<bool, n> is_kept{};
    for (size_t i = 0; i < n; ++i)
        is_kept[i] = tables[i]->keep_open(KeptIndexes::used);
    auto release = [&] {
        for (size_t i = 0; i < n; ++i)
            if (is_kept[i])
                tables[i]->release();
    };
    if constexpr (std::is_void_v<decltype(body())>) {
        body();
        release();
    } else {
        auto result = body();
        static_assert(std::is_trivially_destructible_v<decltype(result)>);
        release();
        return result;
    }
}

} // namespace stacksaga::pg
