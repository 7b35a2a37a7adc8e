#include "src/handler/function_ref.hpp"

#include "core/time/length.hpp"

#include "pg/clock.hpp"
#include "pg/statement/function.hpp"

namespace stacksaga {

std::string_view copy_view(std::string_view s) {
    return {pnstrdup(s.data(), s.size()), s.size()};
}

const char *copy_text(const pg::Rows &rows, uint64 row, int column) {
    std::optional<std::string_view> s = rows.optional_text(row, column);
    return s ? pnstrdup(s->data(), s->size()) : nullptr;
}

namespace {

std::span<const std::string_view> read_list(const pg::Rows &rows, uint64 row, int column) {
    bool isnull;
    Datum d = rows.datum(row, column, &isnull);
    if (isnull)
        return {};
    Datum *values;
    bool *nulls;
    int count;
    deconstruct_array(DatumGetArrayTypeP(d), TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls,
                      &count);
    auto *list = static_cast<std::string_view *>(
        palloc(sizeof(std::string_view) * static_cast<size_t>(count + 1)));
    for (int i = 0; i < count; ++i)
        list[i] = copy_view(pg::view_of_text(values[i]));
    return {list, static_cast<size_t>(count)};
}

} // namespace

RetryRules read_rules(const pg::Rows &rows, uint64 row, int first) {
    RetryRules rules;
    rules.policy = {
        .max_attempts = rows.int4(row, first),
        .initial_interval_us =
            core::longest(*pg::interval_in_range(rows.value(row, first + 1), false)),
        .max_interval_us = core::longest(*pg::interval_in_range(rows.value(row, first + 3), false)),
        .multiplier = rows.float8(row, first + 2),
        .jitter = rows.float8(row, first + 4),
    };
    rules.retry_on = read_list(rows, row, first + 5);
    rules.never_on = read_list(rows, row, first + 6);
    return rules;
}

FunctionRef read_function(const pg::Rows &rows, uint64 row, int column) {
    FunctionRef f;
    f.signature = copy_text(rows, row, column);
    if (f)
        f.oid = DatumGetObjectId(rows.value(row, column + 1));
    return f;
}

} // namespace stacksaga
