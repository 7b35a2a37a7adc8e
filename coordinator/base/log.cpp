#include "base/log.hpp"

#include "core/common/invisible.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <unistd.h>

namespace stacksaga::coordinator {
namespace {

/// Length of the well-formed UTF-8 sequence that `text` begins with, or 0. (Unicode 15, table 3-7.)
std::size_t utf8_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
    const auto in = [&](std::size_t i, std::uint8_t low, std::uint8_t high) {
        return i < text.size() && byte(i) >= low && byte(i) <= high;
    };
    const std::uint8_t first = byte(0);
    if (first < 0x80)
        return 1;
    if (first >= 0xC2 && first <= 0xDF)
        return in(1, 0x80, 0xBF) ? 2 : 0;
    if (first >= 0xE0 && first <= 0xEF) {
        const std::uint8_t low = first == 0xE0 ? 0xA0 : 0x80;
        const std::uint8_t high = first == 0xED ? 0x9F : 0xBF;
        return in(1, low, high) && in(2, 0x80, 0xBF) ? 3 : 0;
    }
    if (first >= 0xF0 && first <= 0xF4) {
        const std::uint8_t low = first == 0xF0 ? 0x90 : 0x80;
        const std::uint8_t high = first == 0xF4 ? 0x8F : 0xBF;
        return in(1, low, high) && in(2, 0x80, 0xBF) && in(3, 0x80, 0xBF) ? 4 : 0;
    }
    return 0;
}

/// As JSON escapes a character: above U+FFFF by two halves.
void append_code(std::string &out, std::uint32_t code) {
    if (code > 0xFFFF) {
        append_code(out, 0xD800 + ((code - 0x10000) >> 10));
        append_code(out, 0xDC00 + ((code - 0x10000) & 0x3FF));
        return;
    }
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
}

void append_escaped(std::string &out, std::string_view text) {
    while (!text.empty()) {
        const char first = text.front();
        const std::size_t length = utf8_length(text);
        if (length == 0)
            out += "\\ufffd";
        else if (first == '"' || first == '\\')
            (out += '\\') += first;
        else if (first == '\n')
            out += "\\n";
        else if (first == '\r')
            out += "\\r";
        else if (first == '\t')
            out += "\\t";
        else if (static_cast<std::uint8_t>(first) < 0x20 || first == 0x7F)
            fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<std::uint8_t>(first));
        else if (const auto code = core::first_character(text).code; core::is_invisible(code))
            append_code(out, code);
        else
            out += text.substr(0, length);
        text.remove_prefix(length == 0 ? 1 : length);
    }
}

/// Whether a logfmt value needs no quotes, because no reader could split or misread it.
bool stands_bare(std::string_view text) {
    if (text.empty())
        return false;
    for (const char c : text) {
        const auto byte = static_cast<std::uint8_t>(c);
        if (byte <= 0x20 || byte >= 0x7F || c == '"' || c == '=' || c == '\\')
            return false;
    }
    return true;
}

void append_quoted(std::string &out, std::string_view text) {
    out += '"';
    append_escaped(out, text);
    out += '"';
}

void append_logfmt(std::string &out, const LogField &field) {
    if (!out.empty())
        out += ' ';
    (out += field.key) += '=';
    if (stands_bare(field.value))
        out += field.value;
    else
        append_quoted(out, field.value);
}

void append_json(std::string &out, const LogField &field) {
    out += out.empty() ? '{' : ',';
    append_quoted(out, field.key);
    out += ':';
    if (field.number_like)
        out += field.value;
    else
        append_quoted(out, field.value);
}

} // namespace

std::string_view name_of(LogLevel level) noexcept {
    static constexpr std::array<std::string_view, 4> names{"debug", "info", "warn", "error"};
    return names[static_cast<std::size_t>(level)];
}

std::string format_time(Instant at) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(at);
    return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03d}Z",
                       fmt::gmtime(seconds.time_since_epoch().count()),
                       std::chrono::floor<std::chrono::milliseconds>(at - seconds).count());
}

std::string format_duration(std::chrono::microseconds duration) {
    const auto count = duration.count();
    if (count % 1'000'000 == 0)
        return fmt::format("{}s", count / 1'000'000);
    if (count % 1'000 == 0)
        return fmt::format("{}ms", count / 1'000);
    return fmt::format("{}us", count);
}

std::string quoted_json(std::string_view text) {
    std::string out;
    append_quoted(out, text);
    return out;
}

std::string format_event(LogFormat format, Instant at, LogLevel level, std::string_view message,
                         std::span<const LogField> fields) {
    const auto append = format == LogFormat::json ? append_json : append_logfmt;
    std::string line;
    append(line, {"ts", format_time(at)});
    append(line, {"level", name_of(level)});
    append(line, {"msg", message});
    for (const LogField &field : fields)
        append(line, field);
    if (format == LogFormat::json)
        line += '}';
    return line;
}

Log::Log(LogFormat format, LogLevel threshold, Sink sink)
    : choice_(std::make_shared<Choice>(Choice{format, threshold})), sink_(std::move(sink)) {}

Log Log::with(const LogField &field) const {
    Log log = *this;
    log.common_.push_back(field);
    return log;
}

void Log::event(LogLevel level, std::string_view message, std::span<const LogField> fields) {
    if (level >= choice_->threshold)
        write(level, message, fields);
}

void Log::answer(std::string_view message, std::span<const LogField> fields) {
    write(LogLevel::info, message, fields);
}

void Log::configure(LogFormat format, LogLevel threshold) noexcept {
    *choice_ = {format, threshold};
}

void Log::write(LogLevel level, std::string_view message, std::span<const LogField> fields) {
    const auto now = std::chrono::floor<Duration>(std::chrono::system_clock::now());
    if (common_.empty()) {
        sink_(format_event(choice_->format, now, level, message, fields) + '\n');
        return;
    }
    std::vector<LogField> all = common_;
    all.insert(all.end(), fields.begin(), fields.end());
    sink_(format_event(choice_->format, now, level, message, all) + '\n');
}

void Log::debug(std::string_view message, std::initializer_list<LogField> fields) {
    event(LogLevel::debug, message, {fields.begin(), fields.size()});
}

void Log::info(std::string_view message, std::initializer_list<LogField> fields) {
    event(LogLevel::info, message, {fields.begin(), fields.size()});
}

void Log::warn(std::string_view message, std::initializer_list<LogField> fields) {
    event(LogLevel::warn, message, {fields.begin(), fields.size()});
}

void Log::error(std::string_view message, std::initializer_list<LogField> fields) {
    event(LogLevel::error, message, {fields.begin(), fields.size()});
}

void write_to_stderr(std::string_view line) {
    while (!line.empty()) {
        const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
        if (written > 0)
            line.remove_prefix(static_cast<std::size_t>(written));
        else if (errno != EINTR)
            return; // a closed or full pipe: there is nowhere left to say so
    }
}

} // namespace stacksaga::coordinator
