// Set-returning functions that materialise their result, and single composite results.
#pragma once
#include "pg/compat.hpp"
#include "pg/pg.hpp"

namespace stacksaga::pg {

/// One output column; `null()` and `of()` keep call sites readable.
struct Column {
    Datum value;
    bool isnull;
};
inline Column of(Datum value) {
    return {value, false};
}
inline Column of(NullableDatum column) {
    return {column.value, column.isnull};
}
inline Column null() {
    return {Datum{0}, true};
}

/// Collects the rows of `RETURNS TABLE/SETOF`. The function returns `finish()`.
class ResultSet {
public:
    explicit ResultSet(FunctionCallInfo fcinfo) : info_(nullptr) {
        init_materialized_srf(fcinfo);
        info_ = reinterpret_cast<ReturnSetInfo *>(fcinfo->resultinfo);
    }

    template <class... C> void add(C... columns) {
        std::array<Column, sizeof...(C)> list{columns...};
        std::array<Datum, sizeof...(C)> values{};
        std::array<bool, sizeof...(C)> nulls{};
        for (size_t i = 0; i < list.size(); ++i) {
            values[i] = list[i].value;
            nulls[i] = list[i].isnull;
        }
        if (info_->setDesc->natts != static_cast<int>(list.size()))
            elog(ERROR, "result has %d columns, %zu were given", info_->setDesc->natts,
                 list.size());
        tuplestore_putvalues(info_->setResult, info_->setDesc, values.data(), nulls.data());
    }
    void add_row(Datum *values, bool *nulls) {
        tuplestore_putvalues(info_->setResult, info_->setDesc, values, nulls);
    }
    /// Takes back what was added.
    void clear() { tuplestore_clear(info_->setResult); }
    TupleDesc descriptor() const { return info_->setDesc; }
    static Datum finish() { return Datum{0}; }

private:
    ReturnSetInfo *info_;
};

} // namespace stacksaga::pg
