// The options of each command, and the values that the user gave them. Only files that include this
// one include CLI11, which takes long to compile.
#pragma once

#include "cli/help.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace stacksaga::coordinator {

/// The values as the user gave them.
struct Words {
    std::vector<std::string> regions{"default"};
    std::vector<std::string> clusters{"default"};
    std::string http = "127.0.0.1:9187";
    std::string metrics_http;
    std::vector<std::string> allowed_hosts;
    std::vector<std::string> trusted_proxies;
    std::string log_format = "logfmt";
    std::string log_level = "info";
    std::string output = "table";
    bool json = false;
};

/// The words of LogFormat and LogLevel, in their order.
inline constexpr std::array<std::string_view, 2> log_formats{"logfmt", "json"};
inline constexpr std::array<std::string_view, 4> log_levels{"debug", "info", "warn", "error"};

/// One command with its own values, because CLI11 applies the environment to all commands.
struct CommandWords {
    const CommandText *text = nullptr;
    CLI::App *app = nullptr;
    CommandConfig config{};
    Words words{};
};

/// A check that accepts these words.
template <std::size_t count> auto one_of(const std::array<std::string_view, count> &words) {
    return [&words](const std::string &text) {
        std::string complaint;
        if (std::ranges::find(words, text) == words.end())
            for (const std::string_view word : words)
                complaint += (complaint.empty() ? "must be " : ", ") + std::string(word);
        return complaint;
    };
}

inline std::string not_empty(const std::string &text) {
    return text.empty() ? "must not be empty" : "";
}

/// Adds the options that choose sagas.
void add_filter(CLI::App &command, CommandConfig &config);

/// Adds the objects and the options of an action, as the table of actions has them.
void add_action(CLI::App &command, CommandConfig &config);

/// Adds the options of the command c.text to c.app.
void add_options(CommandWords &c, const std::string &publisher);

} // namespace stacksaga::coordinator
