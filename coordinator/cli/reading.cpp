#include "cli/reading.hpp"

#include "cli/table.hpp"
#include "db/requirements.hpp"

#include <array>
#include <vector>

namespace stacksaga::coordinator {
namespace {

constexpr std::array<std::string_view, 1> role_kinds{"monitor"};

} // namespace

asio::awaitable<Rows> read_rows(Connection &connection, const char *sql,
                                const Parameters &parameters) {
    return query_as(role_kinds, connection, sql, parameters, command_deadline);
}

std::string table_of(const Rows &rows) {
    std::vector<std::string> names;
    for (int column = 0; column < rows.columns(); ++column)
        names.emplace_back(rows.name(column));
    std::vector<std::vector<std::string>> lines;
    for (int row = 0; row < rows.size(); ++row) {
        std::vector<std::string> &line = lines.emplace_back();
        for (int column = 0; column < rows.columns(); ++column)
            line.emplace_back(rows.text(row, column));
    }
    return format_table(names, lines);
}

} // namespace stacksaga::coordinator
