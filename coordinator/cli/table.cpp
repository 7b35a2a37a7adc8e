#include "cli/table.hpp"

#include <fmt/format.h>

#include <algorithm>

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

std::string escape_controls(std::string_view text) {
    std::string escaped;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
        if (byte == '\n') {
            escaped += "\\n";
        } else if (byte == '\t') {
            escaped += "\\t";
        } else if (byte < 0x20 || byte == 0x7F) {
            escaped += fmt::format("\\x{:02x}", byte);
        } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) { // U+0080 to U+009F
            escaped += fmt::format("\\x{:02x}", next);
            ++i;
        } else {
            escaped += text[i];
        }
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

} // namespace stacksaga::coordinator
