// The command line, its environment and its file. Flags win over STACKSAGA_* variables, those over
// the file, that over defaults.
#pragma once

#include "base/log.hpp"
#include "base/types.hpp"
#include "http/server.hpp"
#include "otlp/settings.hpp"
#include "web/access.hpp"

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
    act, ///< one of actions(), by its name
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

/// What an action needs besides its name.
struct ActionWords {
    std::vector<std::string> targets; ///< sagas by id or key, messages, or one name
    std::string reason;
    std::string spread;
    std::string step;
    std::string outcome;
    std::string output;
    std::string subscription;
    std::string on_behalf_of;
    bool is_confirmed = false; ///< without it the action is only tried
};

struct Config {
    Command command = Command::master;
    std::string command_name;
    std::string conninfo; ///< empty: libpq's environment alone; the first one of several databases
    std::vector<std::string> databases; ///< of master: at least one, as conninfo
    std::vector<RingName> rings;
    bool session_pooler = false; ///< the pooler gives each client its own session
    std::string publisher;       ///< of agent: its name as a node
    double weight = 1;           ///< of agent
    HttpAddress http;
    HttpAddress metrics_http;
    AccessSettings access;
    OtlpSettings otlp;           ///< of master
    bool http_is_default = true; ///< the user did not choose it: a port in use is no error
    LogFormat log_format = LogFormat::logfmt;
    LogLevel log_level = LogLevel::info;
    bool once = false;
    bool dry_run = false;    ///< of master: print the next windows, publish nothing
    bool print_only = false; ///< print the settings and end, without connecting
    bool json = false;       ///< output of the commands that read
    bool watch = false;      ///< read again every two seconds
    std::string key;         ///< of locate; the id or key of saga; the name of hash-password
    SagaFilter filter;       ///< of sagas, and of actions on sagas
    ActionWords action;      ///< of act
    std::string printed;     ///< the settings, each with its source
};

/// Either a configuration to run with, or a text to print and an exit code.
struct CommandLine {
    std::optional<Config> config;
    int exit_code = 0;
    std::string output; ///< for standard output: help, version
    std::string error;  ///< for standard error: the mistake
};

/// `default_publisher` is the name when the user gives none.
[[nodiscard]] CommandLine parse_command_line(int argc, const char *const *argv,
                                             const std::string &default_publisher);

/// HOST:PORT, [V6]:PORT or unix:PATH; nothing when it is neither.
[[nodiscard]] std::optional<HttpAddress> parse_http_address(const std::string &text);

/// Pairs regions with clusters by position; a single one of either goes with each of the other.
/// Nothing when their numbers do not fit. Duplicates are dropped.
[[nodiscard]] std::optional<std::vector<RingName>>
rings_of(const std::vector<std::string> &regions, const std::vector<std::string> &clusters);

} // namespace stacksaga::coordinator
