// A user's function and its rules of retry, as definitions and subscriptions store them.
#pragma once
#include "core/common/retry.hpp"
#include "core/saga/classify.hpp"

#include "pg/pg.hpp"
#include "pg/select.hpp"
#include "pg/statement/query.hpp"

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

/// A retry_policy spread over seven columns of a row, from `first` on, and a function: its
/// signature (null: none) with the oid in the next column. Copied to the current memory context.
RetryRules read_rules(const pg::Rows &rows, uint64 row, int first);
FunctionRef read_function(const pg::Rows &rows, uint64 row, int column);

/// Copies to the current memory context. copy_text: nullptr where the column is NULL.
std::string_view copy_view(std::string_view s);
const char *copy_text(const pg::Rows &rows, uint64 row, int column);

// The same by the name of the first column.
template <class Column>
RetryRules read_rules(const pg::RowsOf<Column> &rows, uint64 row, Column first) {
    return read_rules(rows.unnamed(), row, static_cast<int>(first));
}
template <class Column>
FunctionRef read_function(const pg::RowsOf<Column> &rows, uint64 row, Column column) {
    return read_function(rows.unnamed(), row, static_cast<int>(column));
}
template <class Column>
const char *copy_text(const pg::RowsOf<Column> &rows, uint64 row, Column column) {
    return copy_text(rows.unnamed(), row, static_cast<int>(column));
}

} // namespace stacksaga
