#include "cli/output.hpp"

#include "core/common/invisible.hpp"
#include "db/shared_connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace stacksaga::coordinator {
namespace {

/// Characters of UTF-8, not bytes.
std::size_t width(const std::string &text) {
    return static_cast<std::size_t>(std::ranges::count_if(
        text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

void pad(std::string &line, const std::string &text, std::size_t to) {
    line += text;
    line.append(to - width(text) + 2, ' ');
}

std::string trimmed(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
}

} // namespace

CommandOutput refused(int code, std::string error) {
    return {.text = {}, .code = code, .error = std::move(error)};
}

std::string escape_controls(std::string_view text) {
    std::string escaped;
    while (!text.empty()) {
        const auto [code, bytes] = core::first_character(text);
        if (code == '\n') {
            escaped += "\\n";
        } else if (code == '\t') {
            escaped += "\\t";
        } else if (code < 0x20 || (code >= 0x7F && code < 0xA0 && (code == 0x7F || bytes == 2))) {
            escaped += fmt::format("\\x{:02x}", code);
        } else if (core::is_invisible(code)) {
            const core::Escape escape = core::escape_of(code);
            escaped.append(escape.text.data(), escape.size);
        } else {
            escaped += text.substr(0, bytes);
        }
        text.remove_prefix(bytes);
    }
    return escaped;
}

std::string format_table(const std::vector<std::string> &names,
                         const std::vector<std::vector<std::string>> &raw_rows) {
    std::vector<std::vector<std::string>> rows = raw_rows;
    for (std::vector<std::string> &row : rows)
        for (std::string &cell : row)
            cell = escape_controls(cell);
    std::vector<std::size_t> widths;
    for (std::size_t column = 0; column < names.size(); ++column) {
        widths.push_back(width(names[column]));
        for (const std::vector<std::string> &row : rows)
            widths.back() = std::max(widths.back(), width(row[column]));
    }
    std::string head, line, out;
    for (std::size_t column = 0; column < names.size(); ++column) {
        pad(head, names[column], widths[column]);
        pad(line, std::string(widths[column], '-'), widths[column]);
    }
    out = trimmed(head) + trimmed(line);
    for (const std::vector<std::string> &row : rows) {
        line.clear();
        for (std::size_t column = 0; column < names.size(); ++column)
            pad(line, row[column], widths[column]);
        out += trimmed(line);
    }
    return out;
}

asio::awaitable<Rows> read_rows(Connection &connection, const char *sql,
                                const Parameters &parameters) {
    return query_as(monitor_kinds, connection, sql, parameters, command_deadline);
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
