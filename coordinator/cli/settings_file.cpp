#include "cli/settings_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

namespace stacksaga::coordinator {
namespace {

std::string trimmed(std::string_view text) {
    constexpr const char *blanks = " \t\r";
    const auto from = std::min(text.find_first_not_of(blanks), text.size());
    return std::string(text.substr(from, text.find_last_not_of(blanks) + 1 - from));
}

class Scanner {
public:
    Scanner(const std::string &file, std::string_view text) : file_(file), rest_(text) {}

    /// Passes over blanks and a comment, and with `over_lines` over any number of lines of them.
    void skip(bool over_lines) {
        for (;;) {
            if (next_is("#;"))
                rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
            else if (over_lines && next_is("\n"))
                take();
            else if (next_is(" \t\r"))
                take();
            else
                return;
        }
    }

    [[nodiscard]] bool is_at_end() const { return rest_.empty(); }
    [[nodiscard]] bool next_is(std::string_view characters) const {
        return !rest_.empty() && characters.find(rest_.front()) != std::string_view::npos;
    }

    char take() {
        const char taken = rest_.front();
        rest_.remove_prefix(1);
        line_ += taken == '\n' ? 1 : 0;
        return taken;
    }

    /// Takes the text before one of these characters or the end of the line.
    std::string take_until(const std::string &characters) {
        const std::string_view text = rest_.substr(0, rest_.find_first_of(characters + "\n"));
        rest_.remove_prefix(text.size());
        return trimmed(text);
    }

    /// Takes a text in quotes, or without them up to one of these characters. In double quotes \"
    /// and \\ are escapes.
    std::string take_text(const std::string &ends) {
        if (!next_is("\"'"))
            return take_until(ends);
        const char quote = take();
        std::string text;
        while (!next_is({&quote, 1})) {
            if (is_at_end() || next_is("\n"))
                fail("a text ends with the quote that it begins with");
            text += take();
            if (quote == '"' && text.back() == '\\' && next_is("\"\\"))
                text.back() = take();
        }
        take();
        return text;
    }

    std::vector<std::string> take_values() {
        skip(false);
        if (!next_is("["))
            return {take_text("#")};
        std::vector<std::string> values;
        take();
        for (skip(true); !next_is("]"); skip(true)) {
            values.push_back(take_text(",]#"));
            skip(true);
            if (next_is(","))
                take();
            else if (!next_is("]"))
                fail("a list ends with ]");
        }
        take();
        return values;
    }

    void end_line(const char *after) {
        skip(false);
        if (!is_at_end() && !next_is("\n"))
            fail(std::string("expected nothing after ") + after);
    }

    [[nodiscard]] std::string place() const { return file_ + ":" + std::to_string(line_); }

    [[noreturn]] void fail(const std::string &complaint) const {
        throw SettingsError(place() + ": " + complaint);
    }

private:
    const std::string &file_;
    std::string_view rest_;
    int line_ = 1;
};

} // namespace

std::vector<Setting> read_settings(const std::string &file) {
    std::ifstream stream(file);
    if (!stream)
        throw SettingsError(file + ": " + std::strerror(errno));
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    std::vector<Setting> settings;
    std::string section;
    Scanner scanner(file, text);
    for (scanner.skip(true); !scanner.is_at_end(); scanner.skip(true)) {
        Setting setting{.section = {}, .name = {}, .values = {}, .place = scanner.place()};
        if (scanner.next_is("[")) {
            scanner.take();
            section = scanner.take_until("]");
            if (!scanner.next_is("]"))
                scanner.fail("a section ends with ]");
            scanner.take();
            scanner.end_line("]");
        } else {
            setting.name = scanner.take_until("=");
            if (setting.name.empty() || !scanner.next_is("="))
                scanner.fail("expected [COMMAND], NAME = VALUE or # a comment");
            scanner.take();
            setting.values = scanner.take_values();
            scanner.end_line("a value");
        }
        setting.section = section;
        settings.push_back(std::move(setting));
    }
    return settings;
}

} // namespace stacksaga::coordinator
