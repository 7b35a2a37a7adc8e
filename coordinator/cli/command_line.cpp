#include "cli/command_line.hpp"

#include "cli/options.hpp"
#include "cli/settings_file.hpp"
#include "db/conninfo.hpp"
#include "db/store_error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string_view>

namespace stacksaga::coordinator {
namespace {

constexpr const char *description =
    "Coordinates the token rings of a database that has the extension stacksaga.";

/// Where the value of an option comes from that is not its default.
struct Source {
    const char *kind;    ///< flag, environment or file
    std::string place{}; ///< of a file: FILE:LINE
};
using Sources = std::map<const CLI::Option *, Source>;

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
std::string print_settings(const CLI::App &command, const Sources &sources) {
    std::string out;
    for (const CLI::Option *option : command.get_options()) {
        const std::string name = option->get_single_name();
        if (name == "help" || option->get_positional() || option->get_items_expected_max() == 0)
            continue;
        const auto found = sources.find(option);
        const char *source = found == sources.end() ? "default" : found->second.kind;
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

/// Whether the command line has a flag of this option.
bool is_flagged(const CLI::Option &option, const std::vector<std::string> &words) {
    return std::ranges::any_of(words, [&option](const std::string &word) {
        const auto is_long = [&word](const std::string &name) {
            return word == "--" + name || word.starts_with("--" + name + "=");
        };
        const auto is_short = [&word](const std::string &name) {
            return word.starts_with("-" + name) && !word.starts_with("--");
        };
        return std::ranges::any_of(option.get_lnames(), is_long) ||
               std::ranges::any_of(option.get_snames(), is_short);
    });
}

/// The settings file that --config or its variable names; empty for none.
std::string settings_file(const std::vector<std::string> &words) {
    constexpr std::string_view flag = "--config=";
    const char *variable = std::getenv("STACKSAGA_CONFIG");
    std::string file = variable ? variable : "";
    for (std::size_t i = 0; i < words.size(); ++i)
        if (words[i].starts_with(flag))
            file = words[i].substr(flag.size());
        else if ((words[i] == "-c" || words[i] == "--config") && i + 1 < words.size())
            file = words[i + 1];
    return file;
}

/// The option that a setting is for; null for the head of a section. Throws SettingsError where
/// there is no such command or setting.
CLI::Option *option_of(const std::vector<CommandWords> &commands, const Setting &setting) {
    const auto command = std::ranges::find_if(
        commands, [&](const CommandWords &c) { return c.app->get_name() == setting.section; });
    if (command == commands.end() && setting.section.empty())
        throw SettingsError(fmt::format("{}: there is no setting \"{}\"; a setting stands in the "
                                        "section of its command, as [master]",
                                        setting.place, setting.name));
    if (command == commands.end())
        throw SettingsError(
            fmt::format("{}: there is no command \"{}\"", setting.place, setting.section));
    if (setting.name.empty())
        return nullptr;
    CLI::Option *option = command->app->get_option_no_throw("--" + setting.name);
    if (!option || setting.name == "help")
        throw SettingsError(fmt::format("{}: there is no setting \"{}.{}\"", setting.place,
                                        setting.section, setting.name));
    return option;
}

/// The words of the command line, completed by the settings that stand in the environment or the
/// file and that no flag gives: CLI11 would read both by itself, but its releases differ in what
/// they do with a value that the option refuses, and none knows the line of the file. check-config
/// reads what master would, as far as it has the setting. Throws SettingsError.
std::vector<std::string> complete(std::vector<std::string> words,
                                  const std::vector<CommandWords> &commands, Sources &sources) {
    const auto named = std::ranges::find_if(words, [](const std::string &word) {
        return std::ranges::any_of(command_texts(),
                                   [&](const CommandText &text) { return word == text.name; });
    });
    const auto called = std::ranges::find_if(commands, [&](const CommandWords &command) {
        return named != words.end() && *named == command.app->get_name();
    });
    const auto asks = [&words](const char *flag) { return std::ranges::count(words, flag) > 0; };
    if (called == commands.end() || asks("--help") || asks("-h") || asks("--version"))
        return words;
    std::vector<std::string> added;
    const auto add = [&](const CLI::Option &option, const std::string &value, Source source) {
        const std::string flag = "--" + option.get_single_name();
        sources[&option] = std::move(source);
        if (option.get_items_expected_max() == 0)
            added.push_back(flag + "=" + value);
        else
            added.insert(added.end(), {flag, value});
    };
    for (const CLI::Option *option : called->app->get_options()) {
        const char *value = std::getenv(option->get_envname().c_str());
        if (is_flagged(*option, words))
            sources[option] = {"flag"};
        else if (value && *value)
            add(*option, value, {"environment"});
    }
    const Sources first = sources;
    const std::string file = settings_file(words);
    for (const Setting &setting : file.empty() ? std::vector<Setting>{} : read_settings(file)) {
        const CLI::Option *option = option_of(commands, setting);
        if (called->text->command == Command::check_config && setting.section == "master" && option)
            option = called->app->get_option_no_throw("--" + setting.name);
        else if (setting.section != called->app->get_name())
            option = nullptr;
        if (option && !first.contains(option))
            for (const std::string &value : setting.values)
                add(*option, value, {"file", setting.place});
    }
    words.insert(std::ranges::find(words, "--"), added.begin(), added.end());
    return words;
}

/// The place in the file of the setting that a complaint is about: "--NAME: ...", "... --NAME =
/// ...".
std::string place_of(const Sources &sources, const std::string &complaint) {
    for (const auto &[option, source] : sources) {
        const std::string flag = "--" + option->get_single_name();
        const auto at = complaint.find(flag);
        if (at != std::string::npos && complaint.find_first_of(": ", at) == at + flag.size())
            return source.place;
    }
    return {};
}

template <class Value> Value value_of(const auto &words, const std::string &word) {
    return static_cast<Value>(std::ranges::find(words, word) - words.begin());
}

/// Completes the settings from the words of the command line. Returns the complaint about settings
/// that exclude each other, which begins with the name of one; empty when there is none.
std::string finish(CommandWords &called, const Sources &sources) {
    CommandConfig &config = called.config;
    const Words &words = called.words;
    auto rings = rings_of(words.regions, words.clusters);
    if (!rings)
        return "--region and --cluster: give the same number of both, or one of either";
    if (called.text->command == Command::agent && rings->size() > 1)
        return "--region and --cluster: an agent is a node of one ring; start another agent for "
               "another ring";
    config.rings = std::move(*rings);
    config.once = config.once || config.dry_run;
    if (config.databases.empty())
        config.databases.push_back(config.conninfo);
    config.conninfo = config.databases.front();
    if (!words.http.empty())
        config.http = *parse_http_address(words.http);
    if (!words.metrics_http.empty())
        config.metrics_http = *parse_http_address(words.metrics_http);
    config.http.names = words.allowed_hosts;
    AccessSettings &access = config.access;
    for (const std::string &proxy : words.trusted_proxies)
        access.trusted_proxies.push_back(*Network::parse(proxy));
    std::ranges::transform(access.operator_header, access.operator_header.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (const CLI::Option *http = called.app->get_option_no_throw("--http"))
        config.http_is_default = http->count() == 0;
    config.json = words.json || words.output == "json";
    config.printed = print_settings(*called.app, sources);
    config.log_format = value_of<LogFormat>(log_formats, words.log_format);
    config.log_level = value_of<LogLevel>(log_levels, words.log_level);
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

/// The complaint about a first word that is not a command; empty where it is one, or could be a
/// connection string with a password.
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

/// A complaint about a setting. One of the file is a mistake of the file, at its place.
CommandLine refused_setting(const Sources &sources, const std::string &complaint,
                            std::string explained) {
    const std::string place = place_of(sources, complaint);
    return place.empty() ? refused(exit_code::usage, std::move(explained))
                         : refused(exit_code::bad_config, place + ": " + explained);
}

CommandLine failed_parse(CLI::App &app, const CLI::ParseError &error, const Sources &sources,
                         const std::string &unknown) {
    std::ostringstream out;
    std::ostringstream err;
    if (app.exit(error, out, err) == 0) {
        CommandLine result;
        result.output = out.str();
        return result;
    }
    if (!unknown.empty())
        return refused(exit_code::usage, unknown);
    if (dynamic_cast<const CLI::ExtrasError *>(&error) != nullptr)
        return refused(exit_code::usage, unexpected_arguments(app));
    return refused_setting(sources, error.what(), err.str());
}

/// A newer CLI11, as 2.6, fills a footer's lines up like those of a paragraph: it would run the
/// examples together.
template <class Formatter> void keep_footer_lines(Formatter &formatter) {
    if constexpr (requires { formatter.enable_footer_formatting(false); })
        formatter.enable_footer_formatting(false);
}

/// "command) words="--a --b" ;;" for each command.
std::string cases() {
    std::string lines;
    for (const CommandText &text : command_texts()) {
        CLI::App app;
        CommandWords command;
        command.text = &text;
        command.app = app.add_subcommand(text.name, text.what);
        add_options(command, "");
        std::string words;
        for (const CLI::Option *option : command.app->get_options())
            for (const std::string &name : option->get_lnames())
                words += (words.empty() ? "--" : " --") + name;
        lines += fmt::format("        {}) words=\"{} --config\" ;;\n", text.name, words);
    }
    return lines;
}

std::string commands() {
    std::string names;
    for (const CommandText &text : command_texts())
        names += (names.empty() ? "" : " ") + std::string(text.name);
    return names;
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
    std::string file;
    app.add_option("-c,--config", file,
                   "Settings file in TOML or INI, with a section for each command, as [master]")
        ->envname("STACKSAGA_CONFIG")
        ->type_name("FILE");
    std::vector<CommandWords> commands(command_texts().size());
    for (std::size_t i = 0; i < commands.size(); ++i) {
        const CommandText &text = command_texts()[i];
        commands[i].text = &text;
        commands[i].app = app.add_subcommand(text.name, text.what);
        add_options(commands[i], default_publisher);
    }
    Sources sources;
    try {
        auto words = complete({argv + 1, argv + argc}, commands, sources);
        std::ranges::reverse(words); // as CLI11 takes them
        app.parse(words);
    } catch (const CLI::ParseError &error) {
        return failed_parse(app, error, sources, unknown_command(argc, argv));
    } catch (const SettingsError &error) {
        return refused(exit_code::bad_config, std::string(error.what()) + "\n");
    }
    CommandWords &called =
        *std::ranges::find_if(commands, [](const CommandWords &c) { return c.app->parsed(); });
    if (const std::string complaint = finish(called, sources); !complaint.empty())
        return refused_setting(sources, complaint, complaint + more);
    CommandLine result;
    result.config = std::move(called.config);
    return result;
}

std::string completion_script(const std::string &shell) {
    if (shell != "bash" && shell != "zsh")
        return {};
    const std::string script =
        fmt::format("_stacksaga_coordinator() {{\n"
                    "    local words\n"
                    "    case ${{COMP_WORDS[1]}} in\n"
                    "{}"
                    "        *) words=\"{} --help --version\" ;;\n"
                    "    esac\n"
                    "    [ \"$COMP_CWORD\" -gt 1 ] || words=\"{} --help --version\"\n"
                    "    COMPREPLY=($(compgen -W \"$words\" -- \"${{COMP_WORDS[COMP_CWORD]}}\"))\n"
                    "}}\n"
                    "complete -o default -F _stacksaga_coordinator "
                    "stacksaga-coordinator\n",
                    cases(), commands(), commands());
    return (shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" : "") + script;
}

} // namespace stacksaga::coordinator
