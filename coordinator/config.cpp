#include "config.hpp"

#include "conninfo.hpp"
#include "errors.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

namespace stacksaga::coordinator {
namespace {

constexpr const char *description =
    "Coordinates the token rings of a database that has the extension stacksaga.";

constexpr const char *footer =
    "The connection uses libpq's settings: PG* environment variables, service and password files apply\n"
    "unless --dbname overrides them. Any number of coordinators may serve the same rings.\n"
    "\n"
    "Exit codes: 0 done or stopped by a signal, 1 warnings and 2 errors of status or doctor, 64 usage, 65 bad\n"
    "configuration file, a pooler, or no such ring (--once), 69 database unavailable (--once), 70\n"
    "internal error, 75 refused for now (--once), 77 permission denied, 78 extension missing or of\n"
    "another version.\n"
    "\n"
    "Signals of master and agent: SIGTERM and SIGINT stop the daemon (a second one at once), SIGHUP\n"
    "reloads the settings file and applies the level and format of the log, SIGUSR1 logs the state.";

/// The values as the user gave them.
struct Words {
    std::vector<std::string> regions{"default"};
    std::vector<std::string> clusters{"default"};
    std::string http = "127.0.0.1:9187";
    std::vector<std::string> http_hosts;
    std::string log_format = "logfmt";
    std::string log_level = "info";
    std::string output = "table";
};

const std::map<std::string, LogFormat> formats{{"logfmt", LogFormat::logfmt},
                                               {"json", LogFormat::json}};
const std::map<std::string, LogLevel> levels{{"debug", LogLevel::debug},
                                             {"info", LogLevel::info},
                                             {"warn", LogLevel::warn},
                                             {"error", LogLevel::error}};

/// A check that accepts the words of a table.
template <class Value> auto one_of(const std::map<std::string, Value> &words) {
    return [&words](const std::string &word) {
        std::string complaint;
        if (!words.contains(word)) {
            for (const auto &[name, value] : words)
                complaint += (complaint.empty() ? "must be " : ", ") + name;
        }
        return complaint;
    };
}

std::string not_empty(const std::string &text) {
    return text.empty() ? "must not be empty" : "";
}

const std::map<std::string, bool> outputs{{"table", false}, {"json", true}};

std::string host_and_port(const std::string &text) {
    return text.empty() || parse_http_address(text) ? "" : "must be HOST:PORT, or empty for none";
}

void add_connection(CLI::App &command, Config &config) {
    command
        .add_option("-d,--dbname", config.conninfo,
                    "Database name, libpq connection string or URI (default: PG* environment)")
        ->envname("STACKSAGA_DBNAME")
        ->type_name("CONNINFO");
}

void add_databases(CLI::App &command, Config &config) {
    command
        .add_option("-d,--dbname", config.databases,
                    "Database name, libpq connection string or URI (default: PG* environment); "
                    "repeat for more databases, each with all these rings")
        ->envname("STACKSAGA_DBNAME")
        ->allow_extra_args(false)
        ->type_name("CONNINFO");
}

/// The same limits as register_node() has.
std::string weight(const std::string &text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    return is_number && value > 0 && value <= 1e6 ? "" : "must be above 0 and at most 1000000";
}

/// An agent is a node: workers belong to it by name, so the name must stay the same.
void add_agent(CLI::App &command, Config &config) {
    command
        .add_option("--name", config.publisher,
                    "Name of this node; it replaces a node that already has the name")
        ->envname("STACKSAGA_NAME")
        ->required()
        ->check(not_empty, "")
        ->type_name("NAME");
    command
        .add_option("--weight", config.weight,
                    "Share of the ring, relative to the weights of other nodes")
        ->envname("STACKSAGA_WEIGHT")
        ->check(weight, "")
        ->type_name("NUMBER")
        ->capture_default_str();
}

void add_rings(CLI::App &command, Words &words) {
    command
        .add_option("--region", words.regions,
                    "Region of a ring; repeat for more rings, paired with --cluster in order")
        ->envname("STACKSAGA_REGION")
        ->delimiter(',')
        ->check(not_empty, "")
        ->type_name("NAME")
        ->capture_default_str();
    command
        .add_option("--cluster", words.clusters,
                    "Cluster of a ring; repeat for more rings (one region serves them all)")
        ->envname("STACKSAGA_CLUSTER")
        ->delimiter(',')
        ->check(not_empty, "")
        ->type_name("NAME")
        ->capture_default_str();
}

void add_print_config(CLI::App &command, Config &config) {
    command.add_flag("--print-config", config.print_only,
                     "Print every setting with its source (flag, environment, file, default) and "
                     "exit, without connecting");
}

void add_publisher(CLI::App &command, Config &config) {
    command
        .add_option("--name", config.publisher,
                    "Name of this daemon in the windows that it publishes (default: HOST:PID)")
        ->envname("STACKSAGA_NAME")
        ->check(not_empty, "")
        ->type_name("NAME");
}

/// The options of both roles of the daemon.
void add_daemon(CLI::App &command, Words &words) {
    command
        .add_option(
            "--http", words.http,
            "Address that serves /livez, /readyz, /health, /metrics, /status and the page; empty for none")
        ->envname("STACKSAGA_HTTP")
        ->check(host_and_port, "")
        ->type_name("HOST:PORT")
        ->capture_default_str();
    command
        .add_option(
            "--http-host", words.http_hosts,
            "Host name that HTTP requests may use, besides localhost, IP addresses and the host of --http; repeat for more")
        ->envname("STACKSAGA_HTTP_HOST")
        ->delimiter(',')
        ->check(not_empty, "")
        ->type_name("NAME");
    command.add_option("--log-format", words.log_format, "logfmt or json")
        ->envname("STACKSAGA_LOG_FORMAT")
        ->check(one_of(formats), "")
        ->type_name("FORMAT")
        ->capture_default_str();
    command.add_option("--log-level", words.log_level, "debug, info, warn or error")
        ->envname("STACKSAGA_LOG_LEVEL")
        ->check(one_of(levels), "")
        ->type_name("LEVEL")
        ->capture_default_str();
}

void add_output(CLI::App &command, Config &config, Words &words) {
    command.add_option("-o,--output", words.output, "table or json")
        ->check(one_of(outputs), "")
        ->type_name("FORMAT")
        ->capture_default_str();
    command.add_flag("--watch", config.watch,
                     "Read and print again every two seconds until stopped");
}

/// One command with its own values, because CLI11 applies the environment to all commands.
struct CommandWords {
    Command command;
    CLI::App *app = nullptr;
    Config config{};
    Words words{};
};

/// Example command lines of a command.
const char *examples_of(Command command) {
    switch (command) {
    case Command::master:
        return "  stacksaga-coordinator master -d 'service=shop user=coordinator'\n"
               "  stacksaga-coordinator master -d shop -d billing --http 0.0.0.0:9187\n"
               "  stacksaga-coordinator master -d shop --region eu,us --dry-run\n"
               "  stacksaga-coordinator master -c coordinator.toml --print-config\n";
    case Command::agent:
        return "  stacksaga-coordinator agent --name north -d 'service=shop user=coordinator'\n";
    case Command::status:
        return "  stacksaga-coordinator status -d shop --watch\n"
               "  stacksaga-coordinator status -d shop -o json | jq .sagas\n"
               "  stacksaga-coordinator status -d shop >/dev/null || echo 'needs attention'\n";
    case Command::ring:
        return "  stacksaga-coordinator ring -d shop --region eu\n"
               "  stacksaga-coordinator ring -d shop -o json | jq '.ranges[].node'\n";
    case Command::locate:
        return "  stacksaga-coordinator locate order-42 -d shop\n";
    case Command::doctor:
        return "  stacksaga-coordinator doctor -d shop\n"
               "  stacksaga-coordinator doctor -d shop -o json | jq -r '.[].fix'\n";
    case Command::check_config:
        break;
    }
    return "  stacksaga-coordinator check-config -c coordinator.toml\n";
}

void add_options(CommandWords &c, const std::string &publisher) {
    CLI::App &app = *c.app;
    app.footer(std::string("Examples:\n") + examples_of(c.command) + "\n" + footer);
    c.config.command = c.command;
    c.config.publisher = publisher;
    if (c.command == Command::master || c.command == Command::check_config)
        add_databases(app, c.config);
    else
        add_connection(app, c.config);
    app.add_flag("--session-pooler", c.config.session_pooler,
                 "Allow a pooler, if it gives each client its own session");
    switch (c.command) {
    case Command::master:
        app.add_flag(
            "--once", c.config.once,
            "Publish the next window of each ring now unless it is already published, and exit");
        app.add_flag("--dry-run", c.config.dry_run,
                     "Print the next window of each ring, publish nothing, and exit");
        add_print_config(app, c.config);
        [[fallthrough]];
    case Command::check_config:
        add_rings(app, c.words);
        add_publisher(app, c.config);
        add_daemon(app, c.words);
        break;
    case Command::agent:
        add_rings(app, c.words);
        add_agent(app, c.config);
        add_print_config(app, c.config);
        add_daemon(app, c.words);
        break;
    case Command::ring:
        add_rings(app, c.words);
        [[fallthrough]];
    case Command::status:
    case Command::doctor:
        add_output(app, c.config, c.words);
        break;
    case Command::locate:
        app.add_option("key", c.config.key, "The key, as it is passed to stacksaga.token()")
            ->required()
            ->type_name("KEY");
        add_output(app, c.config, c.words);
        break;
    }
}

struct CommandText {
    Command command;
    const char *name;
    const char *what;
};
constexpr std::array command_texts{
    CommandText{Command::master, "master", "Publish each window of the rings before it opens"},
    CommandText{Command::agent, "agent",
                "Assign the slots that a master gives this node to its own workers, in one ring"},
    CommandText{Command::status, "status",
                "Print rings, nodes and problems; exit 1 for warnings, 2 for errors"},
    CommandText{Command::ring, "ring",
                "Print the owner and the next owner of each range of the ring"},
    CommandText{Command::locate, "locate", "Print the token of a key and the node that owns it"},
    CommandText{
        Command::doctor, "doctor",
        "Print the problems of the database and the SQL that fixes them; exit 1 for warnings, 2 for errors"},
    CommandText{
        Command::check_config, "check-config",
        "Read the settings of master and connect; print each setting with its source, or the error"},
};

/// The settings file that the user named; empty for none.
std::string settings_file(const CLI::App &app) {
    const CLI::Option *option = app.get_config_ptr();
    return option->count() > 0 ? option->as<std::string>() : std::string();
}

/// The text before the "=" of a line, or nothing.
std::string key_of(const std::string &line) {
    const auto from = line.find_first_not_of(" \t");
    const auto equals = line.find('=');
    if (from == std::string::npos || equals == std::string::npos || equals <= from)
        return {};
    const auto to = line.find_last_not_of(" \t", equals - 1);
    return line.substr(from, to - from + 1);
}

/// "FILE:LINE" where a complaint is about a setting of the file. CLI11 names the setting, "--name:"
/// or at the end "section.name", and not the line.
std::optional<std::string> place_in_file(const CLI::App &app, const std::string &complaint) {
    const std::string file = settings_file(app);
    std::ifstream lines(file);
    std::string line;
    for (int number = 1; !file.empty() && std::getline(lines, line); ++number) {
        const std::string key = key_of(line);
        if (!key.empty() && (complaint.starts_with("--" + key + ":") ||
                             complaint.ends_with("." + key) || complaint.ends_with(" " + key)))
            return file + ":" + std::to_string(number);
    }
    return std::nullopt;
}

/// The complaint about a line that is no section, setting or comment, which CLI11 would ignore.
std::optional<std::string> complaint_of_file(const CLI::App &app) {
    const std::string file = settings_file(app);
    std::ifstream lines(file);
    std::string line;
    for (int number = 1; !file.empty() && std::getline(lines, line); ++number) {
        const auto from = line.find_first_not_of(" \t\r");
        if (from != std::string::npos && std::string("[#;").find(line[from]) == std::string::npos &&
            key_of(line).empty())
            return file + ":" + std::to_string(number) +
                   ": expected [COMMAND], NAME = VALUE or # a comment";
    }
    return std::nullopt;
}

/// Names the flags that no command has. It shows neither their values nor other arguments, because
/// these may be a connection string with a password.
std::string unexpected_arguments(const CLI::App &app) {
    std::string names;
    for (const std::string &word : app.remaining(true))
        if (word.starts_with('-'))
            names += (names.empty() ? "" : " ") + word.substr(0, word.find('='));
    return (names.empty() ? "There is one argument too many"
                          : "The following arguments were not expected: " + names) +
           "\nRun with --help for more information.\n";
}

/// Whether the command line has a flag of this option.
bool is_flagged(const CLI::Option &option, int argc, const char *const *argv) {
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        for (const std::string &name : option.get_lnames())
            if (word == "--" + name || word.starts_with("--" + name + "="))
                return true;
        for (const std::string &name : option.get_snames())
            if (word.starts_with("-" + name) && !word.starts_with("--"))
                return true;
    }
    return false;
}

/// The default as a user would write it; CLI11 puts lists into brackets.
std::string default_of(const CLI::Option &option) {
    std::string text = option.get_default_str();
    if (text.size() >= 2 && text.front() == '[' && text.back() == ']')
        text = text.substr(1, text.size() - 2);
    return text;
}

std::string setting_line(const std::string &name, const std::string &value, const char *source) {
    return name + " = \"" + value + "\"  # " + source + "\n";
}

/// One line a setting, and one for each connection string: its value, without secrets, and which of
/// flag, environment, file and default it comes from.
std::string print_settings(const CLI::App &command, int argc, const char *const *argv) {
    std::string out;
    for (const CLI::Option *option : command.get_options()) {
        const std::string name = option->get_single_name();
        if (name == "help" || option->get_positional() || option->get_items_expected_max() == 0)
            continue;
        const char *source = "default";
        if (is_flagged(*option, argc, argv))
            source = "flag";
        else if (!option->get_envname().empty() &&
                 std::getenv(option->get_envname().c_str()) != nullptr)
            source = "environment";
        else if (option->count() > 0)
            source = "file";
        if (name == "dbname" && option->count() > 0) {
            for (const std::string &conninfo : option->results())
                out += setting_line(name, without_secrets(conninfo), source);
            continue;
        }
        std::string value;
        for (const std::string &word : option->results())
            value += (value.empty() ? "" : ",") + word;
        out += setting_line(name, option->count() > 0 ? value : default_of(*option), source);
    }
    return out;
}

} // namespace

std::optional<std::vector<RingName>> rings_of(const std::vector<std::string> &regions,
                                              const std::vector<std::string> &clusters) {
    const std::size_t count = std::max(regions.size(), clusters.size());
    const auto fits = [&](std::size_t size) { return size == count || size == 1; };
    if (!fits(regions.size()) || !fits(clusters.size()))
        return std::nullopt;
    std::vector<RingName> rings;
    for (std::size_t i = 0; i < count; ++i) {
        RingName ring{regions[regions.size() == 1 ? 0 : i], clusters[clusters.size() == 1 ? 0 : i]};
        if (std::ranges::find(rings, ring) == rings.end())
            rings.push_back(std::move(ring));
    }
    return rings;
}

std::optional<HttpAddress> parse_http_address(const std::string &text) {
    const auto colon = text.rfind(':');
    if (colon == std::string::npos || colon == 0)
        return std::nullopt;
    std::string host = text.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']')
        host = host.substr(1, host.size() - 2);
    const std::string digits = text.substr(colon + 1);
    unsigned port = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error != std::errc() || end != digits.data() + digits.size() || port > 65535)
        return std::nullopt;
    return HttpAddress{std::move(host), static_cast<std::uint16_t>(port)};
}

CommandLine parse_command_line(int argc, const char *const *argv,
                               const std::string &default_publisher) {
    CommandLine result;
    CLI::App app(description, "stacksaga-coordinator");
    app.set_version_flag("--version", "stacksaga-coordinator " STACKSAGA_VERSION);
    app.require_subcommand(1);
    app.footer(footer);
    app.fallthrough();
    app.allow_config_extras(CLI::config_extras_mode::error);
    app.set_config("-c,--config", "",
                   "Settings file in TOML or INI, with a section for each command, as [master]")
        ->envname("STACKSAGA_CONFIG")
        ->type_name("FILE");
    std::array<CommandWords, command_texts.size()> commands;
    for (std::size_t i = 0; i < commands.size(); ++i) {
        commands[i].command = command_texts[i].command;
        commands[i].app = app.add_subcommand(command_texts[i].name, command_texts[i].what);
        add_options(commands[i], default_publisher);
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        std::ostringstream out;
        std::ostringstream err;
        const int code = app.exit(error, out, err);
        result.exit_code = code == 0 ? exit_code::ok : exit_code::usage;
        result.output = out.str();
        result.error = dynamic_cast<const CLI::ExtrasError *>(&error) != nullptr
                           ? unexpected_arguments(app)
                           : err.str();
        if (dynamic_cast<const CLI::FileError *>(&error) != nullptr)
            result.exit_code = exit_code::bad_config;
        if (const auto place = place_in_file(app, error.what())) {
            result.exit_code = exit_code::bad_config;
            result.error = *place + ": " + result.error;
        }
        return result;
    }
    if (const auto complaint = complaint_of_file(app)) {
        result.exit_code = exit_code::bad_config;
        result.error = *complaint + "\n";
        return result;
    }
    CommandWords &called =
        *std::ranges::find_if(commands, [](const CommandWords &c) { return c.app->parsed(); });
    auto rings = rings_of(called.words.regions, called.words.clusters);
    if (!rings) {
        result.exit_code = exit_code::usage;
        result.error = "--region and --cluster: give the same number of both, or one of either\n"
                       "Run with --help for more information.\n";
        return result;
    }
    if (called.command == Command::agent && rings->size() > 1) {
        result.exit_code = exit_code::usage;
        result.error =
            "--region and --cluster: an agent is a node of one ring; start another agent for another ring\nRun with --help for more information.\n";
        return result;
    }
    Config &config = called.config;
    config.once = config.once || config.dry_run;
    config.rings = std::move(*rings);
    if (config.databases.empty())
        config.databases.push_back(config.conninfo);
    config.conninfo = config.databases.front();
    if (!called.words.http.empty())
        config.http = *parse_http_address(called.words.http);
    config.http.names = std::move(called.words.http_hosts);
    if (const CLI::Option *http = called.app->get_option_no_throw("--http"))
        config.http_is_default = http->count() == 0;
    config.json = outputs.at(called.words.output);
    config.printed = print_settings(*called.app, argc, argv);
    config.log_format = formats.at(called.words.log_format);
    config.log_level = levels.at(called.words.log_level);
    result.config = std::move(config);
    return result;
}

} // namespace stacksaga::coordinator
