// Text for terminals: tables, and values that cannot do anything to a terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stacksaga::coordinator {

/// Control characters as \n, \t or \xNN, so that a value stays in its line and moves no cursor.
[[nodiscard]] std::string escape_controls(std::string_view text);

/// Rows as a table: a line of names, a line under it, the rows, columns padded in characters;
/// control characters are escaped.
[[nodiscard]] std::string format_table(const std::vector<std::string> &names,
                                       const std::vector<std::vector<std::string>> &rows);

} // namespace stacksaga::coordinator
