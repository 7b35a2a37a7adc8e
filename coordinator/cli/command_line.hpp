// The command line, its environment and its file. Flags win over STACKSAGA_* variables, those over
// the file, that over defaults.
#pragma once

#include "base/config.hpp"

#include <optional>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

enum class Command {
    master,
    agent,
    status,
    ring,
    locate,
    doctor,
    check_config,
    sagas,
    saga,
    queues,
    schedules,
    definitions,
    dead_messages,
    act, ///< one of the table of actions, by its name
    hash_password,
    completion
};

/// Which sagas a command reads or acts on. Empty texts do not filter.
struct SagaFilter {
    std::string saga;
    std::string status;
    std::string key_prefix;
    std::string attributes; ///< a JSON object
    int max = 50;

    [[nodiscard]] bool is_empty() const noexcept {
        return saga.empty() && status.empty() && key_prefix.empty() && attributes.empty();
    }
};

/// The arguments of an action.
struct ActionWords {
    std::vector<std::string> targets; ///< sagas by id or key, messages, or one name
    std::string reason;
    std::string spread;
    std::string until; ///< an instant as PostgreSQL reads it
    std::string step;
    std::string outcome;
    std::string output;
    std::string subscription;
    std::string on_behalf_of;
    bool is_confirmed = false; ///< without it the action is a dry run
    bool past_dedupe_retention = false;
};

/// A command with its arguments and settings.
struct CommandConfig : Config {
    Command command = Command::master;
    std::string command_name;
    bool print_only = false; ///< print the settings and end, without connecting
    bool json = false;       ///< output of the commands that read
    bool watch = false;      ///< read again every two seconds
    std::string key;         ///< of locate; the id or key of saga; the name of hash-password
    SagaFilter filter;       ///< of sagas, and of actions on sagas
    ActionWords action;      ///< of act
};

/// Either a configuration to run with, or a text to print and an exit code.
struct CommandLine {
    std::optional<CommandConfig> config;
    int exit_code = 0;
    std::string output; ///< for standard output: help, version
    std::string error;  ///< for standard error: the mistake
};

/// `default_publisher` is the name when the user gives none.
[[nodiscard]] CommandLine parse_command_line(int argc, const char *const *argv,
                                             const std::string &default_publisher);

/// A completion script for "bash" or "zsh", made of the commands and options that there are; empty
/// for another shell.
[[nodiscard]] std::string completion_script(const std::string &shell);

} // namespace stacksaga::coordinator
