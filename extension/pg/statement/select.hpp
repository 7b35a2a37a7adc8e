// Rows whose columns are read by name: an enum beside the SELECT has the names of its columns, in
// its order.
//
//   enum class RingColumn : uint8_t { ring_id, slots };
//   constinit pg::Select<RingColumn> find_ring{"SELECT ring_id, slots FROM stacksaga.ring ..."};
//   find_ring.run(pg::param(region)).int4(0, RingColumn::slots)
//
// The first execution in a session compares the names, so that a column cannot be put into the one
// and left out of the other. What has one column is a Statement: its rows are read without a name.
#pragma once
#include "core/enum_names.hpp"

#include "pg/statement/query.hpp"

namespace stacksaga::pg {

/// Raises XX000 where the result of the last execution has other columns.
void check_column_names(std::span<const std::string_view> names);

/// Rows count from 0.
template <class Column> class RowsOf {
public:
    // NOLINTNEXTLINE(google-explicit-constructor): rows of which the columns were compared
    RowsOf(Rows rows) : rows_(rows) {}

    uint64 count() const { return rows_.count(); }
    bool empty() const { return rows_.empty(); }

    bool is_null(uint64 row, Column c) const { return rows_.is_null(row, at(c)); }
    NullableDatum nullable(uint64 row, Column c) const {
        NullableDatum d;
        d.value = rows_.datum(row, at(c), &d.isnull);
        return d;
    }
    Datum value(uint64 row, Column c) const { return rows_.value(row, at(c)); }
    int16 int2(uint64 row, Column c) const { return rows_.int2(row, at(c)); }
    int32 int4(uint64 row, Column c) const { return rows_.int4(row, at(c)); }
    int64 int8(uint64 row, Column c) const { return rows_.int8(row, at(c)); }
    bool boolean(uint64 row, Column c) const { return rows_.boolean(row, at(c)); }
    double float8(uint64 row, Column c) const { return rows_.float8(row, at(c)); }
    TimestampTz time(uint64 row, Column c) const { return rows_.time(row, at(c)); }
    pg_uuid_t uuid(uint64 row, Column c) const { return rows_.uuid(row, at(c)); }
    std::string_view text(uint64 row, Column c) const { return rows_.text(row, at(c)); }
    std::optional<TimestampTz> optional_time(uint64 row, Column c) const {
        return rows_.optional_time(row, at(c));
    }
    std::optional<std::string_view> optional_text(uint64 row, Column c) const {
        return rows_.optional_text(row, at(c));
    }
    std::optional<int64> optional_int8(uint64 row, Column c) const {
        return rows_.optional_int8(row, at(c));
    }

private:
    static constexpr ColumnNumber at(Column c) { return ColumnNumber(static_cast<int>(c)); }
    Rows rows_;
};

/// A Statement with named columns.
template <class Column> class Select {
public:
    template <class... Options>
    constexpr explicit Select(const char *sql, Options... options) : statement_(sql, options...) {}

    template <class... P> RowsOf<Column> run(P... params) {
        return checked(statement_.run(params...));
    }
    template <class... P> RowsOf<Column> read(P... params) {
        return checked(statement_.read(params...));
    }

private:
    RowsOf<Column> checked(Rows rows) {
        if (!is_checked_) [[unlikely]] {
            check_column_names(core::enum_names<Column>);
            is_checked_ = true;
        }
        return rows;
    }

    Statement statement_;
    bool is_checked_ = false;
};

} // namespace stacksaga::pg
