// The log: one line for each event on standard error, as logfmt or JSON.
//
// Values come from servers and users: the log escapes line breaks, control characters and bytes
// that are not UTF-8, so that an event is always one line. It never contains passwords or payloads.
#pragma once

#include "base/time.hpp"

#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stacksaga::coordinator {

enum class LogFormat { logfmt, json };
enum class LogLevel { debug, info, warn, error };

[[nodiscard]] std::string_view name_of(LogLevel level) noexcept;

/// A key (a plain word, from the source code) and its value.
struct LogField {
    LogField(std::string_view name, std::string_view text) : key(name), value(text) {}
    LogField(std::string_view name, std::integral auto number)
        : key(name), value(std::to_string(number)), number_like(true) {}

    std::string_view key;
    std::string value;
    bool number_like = false; ///< JSON: without quotes
};

/// Formats an event, without the line's end. Times are UTC with milliseconds.
[[nodiscard]] std::string format_event(LogFormat format, Instant at, LogLevel level,
                                       std::string_view message, std::span<const LogField> fields);

/// The text as a JSON string, quotes included; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string quoted_json(std::string_view text);

/// RFC 3339 in UTC with milliseconds: 2026-01-31T12:00:00.000Z.
[[nodiscard]] std::string format_time(Instant at);

/// Seconds or milliseconds if they are exact: 60s, 1500ms; microseconds otherwise.
[[nodiscard]] std::string format_duration(std::chrono::microseconds duration);

/// Lifecycle: constructed first, lives as long as the process. One thread.
class Log {
public:
    /// Takes a finished line, its end included.
    using Sink = std::function<void(std::string_view)>;

    Log(LogFormat format, LogLevel threshold, Sink sink);

    /// A log to the same place that adds a field to each event.
    [[nodiscard]] Log with(const LogField &field) const;

    void debug(std::string_view message, std::initializer_list<LogField> fields = {});
    void info(std::string_view message, std::initializer_list<LogField> fields = {});
    void warn(std::string_view message, std::initializer_list<LogField> fields = {});
    void error(std::string_view message, std::initializer_list<LogField> fields = {});
    void event(LogLevel level, std::string_view message, std::span<const LogField> fields);

    /// Writes at level info, even below the threshold, because somebody asked for it.
    void answer(std::string_view message, std::span<const LogField> fields);

    /// Applies from the next line on, also to the logs that with() made.
    void configure(LogFormat format, LogLevel threshold) noexcept;

private:
    void write(LogLevel level, std::string_view message, std::span<const LogField> fields);

    struct Choice {
        LogFormat format;
        LogLevel threshold;
    };

    std::shared_ptr<Choice> choice_; ///< of all logs to the same place
    Sink sink_;
    std::vector<LogField> common_; ///< of every event
};

/// Writes to standard error; a failed write loses the line, but never stops the daemon.
void write_to_stderr(std::string_view line);

} // namespace stacksaga::coordinator
