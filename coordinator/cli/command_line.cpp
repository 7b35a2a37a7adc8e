#include "cli/command_line.hpp"

#include "cli/options.hpp"
#include "cli/settings_file.hpp"
#include "db/conninfo.hpp"
#include "db/store_error.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <unistd.h>

namespace stacksaga::coordinator {
namespace {

constexpr const char *description =
    "Coordinates the token rings of a database that has the extension stacksaga.";

/// The settings file that the user named; empty for none.
std::string settings_file(const CLI::App &app) {
    const CLI::Option *option = app.get_config_ptr();
    return option->count() > 0 ? option->as<std::string>() : std::string();
}

/// CLI11 passes over a file that only the environment names and that is not there.
std::string missing_settings(const CLI::App &app) {
    const char *named = std::getenv(app.get_config_ptr()->get_envname().c_str());
    std::string file = settings_file(app);
    if (file.empty() && named)
        file = named;
    return file.empty() || ::access(file.c_str(), R_OK) == 0
               ? ""
               : file + ": " + std::strerror(errno) + "\n";
}

/// What a setting that no command has is called there, in a sentence.
std::string explain_setting(const std::string &error) {
    constexpr std::string_view unknown = "INI was not able to parse ";
    const auto at = error.find(unknown);
    if (at == std::string::npos)
        return error;
    const auto end = std::min(error.find('\n', at), error.size());
    const std::string name = error.substr(at + unknown.size(), end - at - unknown.size());
    return "there is no setting \"" + name + "\"" +
           (name.find('.') == std::string::npos
                ? "; a setting stands in the section of its command, as [master]"
                : "") +
           error.substr(end);
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

bool is_in_environment(const CLI::Option &option) {
    return !option.get_envname().empty() && std::getenv(option.get_envname().c_str()) != nullptr;
}

/// Takes variables anew whose options no flag has: CLI11 2.4 passes over one whose value, or list
/// of values as a whole, the option refuses. Throws what a flag with the value would.
void take_variables(const CLI::App &app, int argc, const char *const *argv) {
    for (CLI::App *command : app.get_subcommands())
        for (CLI::Option *option : command->get_options()) {
            if (option->get_items_expected_max() == 0 || !is_in_environment(*option) ||
                is_flagged(*option, argc, argv))
                continue;
            const std::string value = std::getenv(option->get_envname().c_str());
            if (value.empty())
                continue;
            option->clear();
            option->add_result(value);
            option->run_callback();
        }
}

/// The file and the line that a complaint is about. Flags and the environment go before the file,
/// so a complaint about a setting that they have is not about the file's.
std::optional<std::string> place_of(const CLI::App &app, const std::string &complaint, int argc,
                                    const char *const *argv) {
    std::vector<std::string> overridden;
    for (const CLI::App *command : app.get_subcommands())
        for (const CLI::Option *option : command->get_options())
            if (is_flagged(*option, argc, argv) || is_in_environment(*option))
                overridden.push_back(option->get_single_name());
    return place_in_file(settings_file(app), complaint, overridden);
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
        else if (is_in_environment(*option))
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
            value +=
                (value.empty() ? "" : ",") + (name == "otlp-header" ? word.substr(0, word.find(':'))
                                              : name == "otlp-endpoint" ? url_without_secrets(word)
                                                                        : word);
        out += setting_line(name, option->count() > 0 ? value : default_of(*option), source);
    }
    return out;
}

/// What is wrong with settings that do not go together, beginning with the name of one; empty when
/// nothing is.
std::string complaint_of(const CommandWords &called) {
    const CommandConfig &config = called.config;
    const AccessSettings &access = config.access;
    if (!access.operators_file.empty() && !access.operator_header.empty())
        return "--operator-header: give this or --operators-file, not both";
    if (!access.operators_file.empty() && !config.http.is_local())
        return "--operators-file: passwords are not sent over a network without TLS; let --http be "
               "a loopback address or a Unix socket, with a proxy before it";
    if (!access.operator_header.empty() && config.http.path.empty() &&
        access.trusted_proxies.empty())
        return "--operator-header: anybody could send this header; name the proxy's network with "
               "--trusted-proxy, or let --http be a Unix socket";
    return {};
}

/// Puts together what the words of a command line say.
void finish(CommandWords &called, int argc, const char *const *argv) {
    CommandConfig &config = called.config;
    const Words &words = called.words;
    config.once = config.once || config.dry_run;
    if (config.databases.empty())
        config.databases.push_back(config.conninfo);
    config.conninfo = config.databases.front();
    if (!words.http.empty())
        config.http = *parse_http_address(words.http);
    if (!words.metrics_http.empty())
        config.metrics_http = *parse_http_address(words.metrics_http);
    config.http.names = words.allowed_hosts;
    for (const std::string &proxy : words.trusted_proxies)
        config.access.trusted_proxies.push_back(*Network::parse(proxy));
    std::ranges::transform(config.access.operator_header, config.access.operator_header.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (const CLI::Option *http = called.app->get_option_no_throw("--http"))
        config.http_is_default = http->count() == 0;
    config.json = words.json || words.output == "json";
    config.printed = print_settings(*called.app, argc, argv);
    config.log_format = log_formats().at(words.log_format);
    config.log_level = log_levels().at(words.log_level);
}

/// The first word of a command line, where it should be a command and is none; it is not shown
/// where it could be a connection string.
std::string unknown_command(int argc, const char *const *argv) {
    const std::string word = argc > 1 ? argv[1] : "";
    const auto is_it = [&word](const CommandText &text) { return word == text.name; };
    if (word.empty() || word.starts_with('-') || std::ranges::any_of(command_texts(), is_it) ||
        word.find_first_of("=:") != std::string::npos)
        return {};
    std::string names;
    for (const CommandText &text : command_texts())
        names += (names.empty() ? "" : ", ") + std::string(text.name);
    return "There is no command \"" + word + "\". The commands are: " + names + ".\n";
}

CommandLine refused(int code, std::string error) {
    CommandLine line;
    line.exit_code = code;
    line.error = std::move(error);
    return line;
}

CommandLine failed_parse(CLI::App &app, const CLI::ParseError &error, int argc,
                         const char *const *argv) {
    std::ostringstream out;
    std::ostringstream err;
    CommandLine result;
    result.exit_code = app.exit(error, out, err) == 0 ? exit_code::ok : exit_code::usage;
    result.output = out.str();
    if (result.exit_code == exit_code::ok)
        return result;
    result.error = unknown_command(argc, argv);
    if (result.error.empty())
        result.error = dynamic_cast<const CLI::ExtrasError *>(&error) != nullptr
                           ? unexpected_arguments(app)
                           : explain_setting(err.str());
    if (dynamic_cast<const CLI::FileError *>(&error) != nullptr)
        result.exit_code = exit_code::bad_config;
    if (const auto place = place_of(app, error.what(), argc, argv)) {
        result.exit_code = exit_code::bad_config;
        result.error = *place + ": " + result.error;
    }
    return result;
}

/// check-config reads what master would: it has the settings of the section [master], and no
/// section of its own.
class SettingsFormat : public CLI::ConfigTOML {
public:
    std::vector<CLI::ConfigItem> from_config(std::istream &in) const override {
        constexpr std::array only_of_master{"once", "dry-run", "print-config"};
        std::vector<CLI::ConfigItem> read = CLI::ConfigTOML::from_config(in);
        std::vector<CLI::ConfigItem> again;
        for (const CLI::ConfigItem &item : read)
            if (item.parents == std::vector<std::string>{"master"} &&
                std::ranges::find(only_of_master, item.name) == only_of_master.end())
                again.push_back(item);
        for (CLI::ConfigItem &item : again)
            item.parents = {"check-config"};
        read.insert(read.end(), again.begin(), again.end());
        return read;
    }
};

/// A newer CLI11, as 2.6, fills a footer's lines up like those of a paragraph: it would run the
/// examples together.
template <class Formatter> void keep_footer_lines(Formatter &formatter) {
    if constexpr (requires { formatter.enable_footer_formatting(false); })
        formatter.enable_footer_formatting(false);
}

} // namespace

CommandLine parse_command_line(int argc, const char *const *argv,
                               const std::string &default_publisher) {
    constexpr const char *more = "\nRun with --help for more information.\n";
    CLI::App app(description, "stacksaga-coordinator");
    app.set_version_flag("--version", "stacksaga-coordinator " STACKSAGA_VERSION);
    app.require_subcommand(1);
    app.footer(help_footer());
    keep_footer_lines(*app.get_formatter());
    app.fallthrough();
    app.allow_config_extras(CLI::config_extras_mode::error);
    app.config_formatter(std::make_shared<SettingsFormat>());
    app.set_config("-c,--config", "",
                   "Settings file in TOML or INI, with a section for each command, as [master]")
        ->envname("STACKSAGA_CONFIG")
        ->type_name("FILE");
    std::vector<CommandWords> commands(command_texts().size());
    std::vector<std::string_view> names;
    for (std::size_t i = 0; i < commands.size(); ++i) {
        const CommandText &text = command_texts()[i];
        names.emplace_back(text.name);
        commands[i].command = text.command;
        commands[i].app = app.add_subcommand(text.name, text.what);
        add_options(commands[i], default_publisher);
    }
    std::optional<CommandLine> failure;
    try {
        app.parse(argc, argv);
        take_variables(app, argc, argv);
    } catch (const CLI::ParseError &error) {
        failure = failed_parse(app, error, argc, argv);
    }
    if (failure && failure->exit_code == exit_code::ok)
        return *failure;
    if (const std::string missing = missing_settings(app); !missing.empty())
        return refused(exit_code::bad_config, missing);
    if (const auto complaint = complaint_of_file(settings_file(app), names))
        return refused(exit_code::bad_config, *complaint + "\n");
    if (failure)
        return *failure;
    CommandWords &called =
        *std::ranges::find_if(commands, [](const CommandWords &c) { return c.app->parsed(); });
    auto rings = rings_of(called.words.regions, called.words.clusters);
    if (!rings)
        return refused(exit_code::usage, std::string("--region and --cluster: give the same number "
                                                     "of both, or one of either") +
                                             more);
    if (called.command == Command::agent && rings->size() > 1)
        return refused(exit_code::usage,
                       std::string("--region and --cluster: an agent is a node of one ring; start "
                                   "another agent for another ring") +
                           more);
    called.config.rings = std::move(*rings);
    finish(called, argc, argv);
    if (const std::string complaint = complaint_of(called); !complaint.empty()) {
        const auto place = place_of(app, complaint, argc, argv);
        return place ? refused(exit_code::bad_config, *place + ": " + complaint + "\n")
                     : refused(exit_code::usage, complaint + more);
    }
    CommandLine result;
    result.config = std::move(called.config);
    return result;
}

} // namespace stacksaga::coordinator
