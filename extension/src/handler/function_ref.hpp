// A user's function and its rules of retry, as definitions and subscriptions store them.
#pragma once
#include "core/common/retry.hpp"
#include "core/saga/classify.hpp"

#include "pg/pg.hpp"
#include "pg/statement/select.hpp"

namespace stacksaga {

/// A user's function: signature text, with the oid that it had when the saga or the subscription
/// was defined.
struct FunctionRef {
    const char *signature = nullptr; ///< nullptr: there is none
    Oid oid = InvalidOid;
    explicit operator bool() const { return signature != nullptr; }
};

struct RetryRules {
    core::RetryPolicy policy{};
    std::span<const std::string_view> retry_on{};
    std::span<const std::string_view> never_on{};
};

// What these return is copied to the current memory context.

std::string_view copy_view(std::string_view s);
std::span<const std::string_view> copy_list(Datum array); ///< of texts
/// nullptr: it is null.
const char *copy_text(std::optional<std::string_view> s);

/// The longest time that an interval of a retry_policy may be, in microseconds.
int64 longest_pause(Datum interval);

/// A retry_policy, from the columns that are named like its fields.
template <class Column> RetryRules read_rules(const pg::RowsOf<Column> &rows, uint64 row) {
    const auto list = [&](Column column) {
        return rows.is_null(row, column) ? std::span<const std::string_view>{}
                                         : copy_list(rows.value(row, column));
    };
    return {
        .policy = {.max_attempts = rows.int4(row, Column::max_attempts),
                   .initial_interval_us = longest_pause(rows.value(row, Column::initial_interval)),
                   .max_interval_us = longest_pause(rows.value(row, Column::max_interval)),
                   .multiplier = rows.float8(row, Column::multiplier),
                   .jitter = rows.float8(row, Column::jitter)},
        .retry_on = list(Column::retry_on),
        .never_on = list(Column::never_on)};
}

/// From the columns of its signature, where null means that there is none, and of its oid.
template <class Column>
FunctionRef read_function(const pg::RowsOf<Column> &rows, uint64 row, Column signature,
                          Column oid) {
    FunctionRef f{.signature = copy_text(rows.optional_text(row, signature))};
    if (f)
        f.oid = DatumGetObjectId(rows.value(row, oid));
    return f;
}

} // namespace stacksaga
