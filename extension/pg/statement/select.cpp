#include "pg/statement/select.hpp"

namespace stacksaga::pg {

void check_column_names(std::span<const std::string_view> names) {
    const TupleDesc columns = SPI_tuptable->tupdesc;
    if (static_cast<size_t>(columns->natts) != names.size())
        elog(ERROR, "a result has %d columns, its enum %zu", columns->natts, names.size());
    for (int i = 0; i < columns->natts; ++i) {
        const char *name = NameStr(TupleDescAttr(columns, i)->attname);
        const std::string_view expected = names[static_cast<size_t>(i)];
        if (name != expected)
            elog(ERROR, "column %d of a result is \"%s\", its enum says \"%.*s\"", i + 1, name,
                 static_cast<int>(expected.size()), expected.data());
    }
}

} // namespace stacksaga::pg
