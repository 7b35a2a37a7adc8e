// The command line and its environment. Flags win over STACKSAGA_* variables, those over defaults.
#pragma once

#include "log.hpp"
#include "types.hpp"

#include <optional>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

struct Config {
    std::string conninfo; ///< empty: libpq's environment alone
    std::vector<RingName> rings;
    std::string publisher;
    LogFormat log_format = LogFormat::logfmt;
    LogLevel log_level = LogLevel::info;
    bool once = false;
};

/// Either a configuration to run with, or what to print and the exit code to end with.
struct CommandLine {
    std::optional<Config> config;
    int exit_code = 0;
    std::string output; ///< for standard output: help, version
    std::string error;  ///< for standard error: what was wrong
};

/// `default_publisher` is used where no name is given.
[[nodiscard]] CommandLine parse_command_line(int argc, const char *const *argv,
                                             const std::string &default_publisher);

/// Pairs regions with clusters by position; a single one of either goes with each of the other.
/// Nothing when their numbers do not fit. Duplicates are dropped.
[[nodiscard]] std::optional<std::vector<RingName>>
rings_of(const std::vector<std::string> &regions, const std::vector<std::string> &clusters);

} // namespace stacksaga::coordinator
