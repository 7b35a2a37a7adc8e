#include "cli/settings_file.hpp"

#include <algorithm>
#include <fstream>

namespace stacksaga::coordinator {
namespace {

/// Without white space around it.
std::string_view trimmed(std::string_view text) {
    const auto from = text.find_first_not_of(" \t\r");
    if (from == std::string_view::npos)
        return {};
    return text.substr(from, text.find_last_not_of(" \t\r") - from + 1);
}

/// The text before the "=" of a line, or nothing.
std::string_view key_of(std::string_view line) {
    const auto equals = line.find('=');
    return equals == std::string_view::npos ? std::string_view() : trimmed(line.substr(0, equals));
}

/// Whether the value of a line begins with a quote that does not come again.
bool is_open_text(std::string_view line) {
    const auto equals = line.find('=');
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : trimmed(line.substr(equals + 1));
    return !value.empty() && (value.front() == '"' || value.front() == '\'') &&
           value.find(value.front(), 1) == std::string_view::npos;
}

/// Whether a complaint names the option: "--name: ...", "... --name = ...", "... master.name".
bool is_about(std::string_view complaint, const std::string &key) {
    if (complaint.ends_with("." + key) || complaint.ends_with(" " + key))
        return true;
    const auto at = complaint.find("--" + key);
    const auto end = at + key.size() + 2;
    return at != std::string_view::npos &&
           (end == complaint.size() || complaint[end] == ':' || complaint[end] == ' ');
}

/// What is wrong with a line; empty when nothing is.
std::string complaint_of_line(std::string_view line,
                              const std::vector<std::string_view> &commands) {
    if (line.empty() || line.front() == '#' || line.front() == ';')
        return {};
    if (is_open_text(line))
        return "a text ends with the quote that it begins with";
    if (line.front() != '[')
        return key_of(line).empty() ? "expected [COMMAND], NAME = VALUE or # a comment" : "";
    const auto end = line.find(']');
    if (end == std::string_view::npos)
        return "a section ends with ]";
    const std::string_view rest = trimmed(line.substr(end + 1));
    if (!rest.empty() && rest.front() != '#' && rest.front() != ';')
        return "expected nothing after ]";
    const std::string_view name = trimmed(line.substr(1, end - 1));
    return std::ranges::find(commands, name) == commands.end()
               ? "there is no command \"" + std::string(name) + "\""
               : "";
}

} // namespace

std::optional<std::string> complaint_of_file(const std::string &file,
                                             const std::vector<std::string_view> &commands) {
    std::ifstream lines(file);
    std::string line;
    for (int number = 1; !file.empty() && std::getline(lines, line); ++number) {
        const std::string complaint = complaint_of_line(trimmed(line), commands);
        if (!complaint.empty())
            return file + ":" + std::to_string(number) + ": " + complaint;
    }
    return std::nullopt;
}

std::optional<std::string> place_in_file(const std::string &file, const std::string &complaint,
                                         const std::vector<std::string> &overridden) {
    std::ifstream lines(file);
    std::string line;
    for (int number = 1; !file.empty() && std::getline(lines, line); ++number) {
        const std::string key(key_of(line));
        if (!key.empty() && is_about(complaint, key) &&
            std::ranges::find(overridden, key) == overridden.end())
            return file + ":" + std::to_string(number);
    }
    return std::nullopt;
}

} // namespace stacksaga::coordinator
