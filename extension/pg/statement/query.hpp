// SQL from C++: saved plans with typed parameters, and their rows.
//
// A Statement is a constinit static. Its plan is made at the first run in a session, by plan.hpp,
// and kept; PostgreSQL replans it by itself when what it names changes (also after DROP and CREATE
// EXTENSION, since parameters have builtin types only). Text is schema-qualified and never put
// together.
//
//   static constinit pg::Statement find_ring{"SELECT ring_id FROM stacksaga.ring WHERE region =
//   $1"}; pg::Rows rows = find_ring.run(pg::param(region));
//
// Runs only inside pg::with_spi. Rows live until SPI_finish.
#pragma once
#include "pg/citus/shard_moves.hpp"
#include "pg/pg.hpp"
#include "pg/statement/plan.hpp"

namespace stacksaga::pg {

struct Param {
    Oid type;
    Datum value;
    bool isnull;
};

Param param(std::string_view value); ///< text; palloc'ed in the current context
inline Param param(int16 value) {
    return {INT2OID, Int16GetDatum(value), false};
}
inline Param param(int32 value) {
    return {INT4OID, Int32GetDatum(value), false};
}
inline Param param(int64 value) {
    return {INT8OID, Int64GetDatum(value), false};
}
inline Param param(bool value) {
    return {BOOLOID, BoolGetDatum(value), false};
}
inline Param param(double value) {
    return {FLOAT8OID, Float8GetDatum(value), false};
}
inline Param param(const pg_uuid_t &value) {
    return {UUIDOID, UUIDPGetDatum(&value), false};
}
inline Param param_time(TimestampTz value) {
    return {TIMESTAMPTZOID, TimestampTzGetDatum(value), false};
}
inline Param param_datum(Oid type, Datum value, bool isnull = false) {
    return {type, isnull ? Datum{0} : value, isnull};
}
inline Param param_null(Oid type) {
    return {type, Datum{0}, true};
}
inline Param param(std::optional<std::string_view> value) {
    return value ? param(*value) : param_null(TEXTOID);
}
inline Param param_time(std::optional<TimestampTz> value) {
    return value ? param_time(*value) : param_null(TIMESTAMPTZOID);
}
void param(const char *) = delete; // a char pointer would silently become bool

/// One-dimensional array parameters.
Param param_array(std::span<const int32> values);
Param param_array(std::span<const int64> values);
Param param_array(std::span<const pg_uuid_t> values);
Param param_array(std::span<const std::string_view> values);
Param param_time_array(std::span<const TimestampTz> values);

/// The place of a column. Others than the first one are known to RowsOf alone, by their names.
class ColumnNumber {
public:
    constexpr ColumnNumber() = default;

private:
    friend class Rows;
    template <class Column> friend class RowsOf;
    constexpr explicit ColumnNumber(int number) : number_(number) {}
    int number_ = 0;
};

/// The rows of one execution, which count from 0. They are read so where they have one column;
/// columns of several have names (select.hpp).
class Rows {
public:
    Rows(SPITupleTable *table, uint64 count) : table_(table), count_(count) {}

    uint64 count() const { return count_; }
    bool empty() const { return count_ == 0; }

    Datum datum(uint64 row, ColumnNumber column, bool *isnull) const {
        return SPI_getbinval(table_->vals[row], table_->tupdesc, column.number_ + 1, isnull);
    }
    bool is_null(uint64 row, ColumnNumber column = {}) const {
        bool isnull;
        datum(row, column, &isnull);
        return isnull;
    }
    /// The value of a column that is never null (elog otherwise).
    Datum value(uint64 row, ColumnNumber column = {}) const {
        bool isnull;
        Datum d = datum(row, column, &isnull);
        if (isnull)
            elog(ERROR, "unexpected null in column %d", column.number_ + 1);
        return d;
    }
    int16 int2(uint64 row, ColumnNumber column = {}) const {
        return DatumGetInt16(value(row, column));
    }
    int32 int4(uint64 row, ColumnNumber column = {}) const {
        return DatumGetInt32(value(row, column));
    }
    int64 int8(uint64 row, ColumnNumber column = {}) const {
        return DatumGetInt64(value(row, column));
    }
    bool boolean(uint64 row, ColumnNumber column = {}) const {
        return DatumGetBool(value(row, column));
    }
    double float8(uint64 row, ColumnNumber column = {}) const {
        return DatumGetFloat8(value(row, column));
    }
    TimestampTz time(uint64 row, ColumnNumber column = {}) const {
        return DatumGetTimestampTz(value(row, column));
    }
    pg_uuid_t uuid(uint64 row, ColumnNumber column = {}) const {
        return *DatumGetUUIDP(value(row, column));
    }
    std::string_view text(uint64 row, ColumnNumber column = {}) const;
    std::optional<TimestampTz> optional_time(uint64 row, ColumnNumber column = {}) const;
    std::optional<std::string_view> optional_text(uint64 row, ColumnNumber column = {}) const;
    std::optional<int64> optional_int8(uint64 row, ColumnNumber column = {}) const;

private:
    SPITupleTable *table_;
    uint64 count_;
};

/// The search_path that a statement runs with.
enum class Path : uint8_t {
    pinned,  ///< PostgreSQL's own names only
    in_force ///< for what fires triggers of users
};

/// Which rows of a table that Citus manages a Statement reads.
enum class Reads : uint8_t {
    all_nodes,
    this_node, ///< those of the shards here, as a hint (pg/citus/local_shards.hpp)
};

class Statement {
public:
    /// `sql` must be a literal: plans are kept for the session.
    constexpr explicit Statement(const char *sql, Plans plans = Plans::by_index,
                                 Reads reads = Reads::all_nodes)
        : sql_(sql), plans_(plans), reads_(reads) {}
    constexpr Statement(const char *sql, Reads reads) : Statement(sql, Plans::by_index, reads) {}
    constexpr Statement(const char *sql, Path path) : Statement(sql) { path_ = path; }

    /// Executes with what is committed now, whatever the transaction's isolation level, and returns
    /// its rows: what is read after a lock must be newer than the lock.
    template <class... P> Rows run(P... params) {
        std::array<Param, sizeof...(P)> list{params...};
        return execute(list, Snapshots::latest);
    }
    /// The same with parameters whose number is not known here.
    Rows run_with(std::span<const Param> params) { return execute(params, Snapshots::latest); }

    /// Executes as the transaction's own statement: under REPEATABLE READ and above with its
    /// snapshot, so that PostgreSQL raises 40001 where it would for a user's.
    Rows run_as_own(std::span<const Param> params) {
        return execute(params, Snapshots::of_transaction);
    }

    /// Executes and returns the number of rows that it touched.
    template <class... P> uint64 touch(P... params) { return run(params...).count(); }

    /// Reads with the snapshot of the query that is running: for STABLE functions.
    template <class... P> Rows read(P... params) {
        std::array<Param, sizeof...(P)> list{params...};
        return execute(list, Snapshots::of_query);
    }

private:
    enum class Snapshots : uint8_t { latest, of_query, of_transaction };
    Rows execute(std::span<const Param> params, Snapshots snapshots);
    int execute_plan(std::span<const Param> params, Snapshots snapshots);
    void prepare(std::span<const Param> params);
    /// Whether Citus manages a table now, or no longer, that the statement names, or has moved a
    /// shard that it reads.
    bool is_outdated();

    const char *sql_;
    Plans plans_;
    Reads reads_;
    Path path_ = Path::pinned;
    SPIPlanPtr plan_ = nullptr;
    const char *text_ = nullptr; ///< of the plan: `sql_`, or what Reads made of it
    int options_ = 0;            ///< of the plan
    ShardUse shards_{};          ///< of Citus, that it reads or writes
    uint64 citus_state_ = 0;     ///< when these were chosen
};

} // namespace stacksaga::pg
