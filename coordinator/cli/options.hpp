// The options of each command, and the values that the user gave them. Only files that include this
// one include CLI11, which takes long to compile.
#pragma once

#include "cli/command_line.hpp"

#include <CLI/CLI.hpp>

#include <map>
#include <span>
#include <string>
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

/// The words that a setting accepts.
[[nodiscard]] const std::map<std::string, LogFormat> &log_formats();
[[nodiscard]] const std::map<std::string, LogLevel> &log_levels();

/// One command with its own values, because CLI11 applies the environment to all commands.
struct CommandWords {
    Command command;
    CLI::App *app = nullptr;
    CommandConfig config{};
    Words words{};
};

struct CommandText {
    Command command;
    const char *name;
    const char *what;
};
[[nodiscard]] std::span<const CommandText> command_texts();

/// What every help ends with: exit codes and signals.
[[nodiscard]] const char *help_footer();

/// Example command lines of a command.
[[nodiscard]] const char *examples_of(const CommandWords &c);

/// Adds the options that choose sagas, and those of an action, which is called as the command.
void add_filter(CLI::App &command, CommandConfig &config);
void add_action(CLI::App &command, CommandConfig &config);

/// Adds the options of c.command to c.app.
void add_options(CommandWords &c, const std::string &publisher);

} // namespace stacksaga::coordinator
