#include "cli/options.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <string_view>

namespace stacksaga::coordinator {
namespace {

constexpr std::array<std::string_view, 2> outputs{"table", "json"};

std::string host_and_port(const std::string &text) {
    return text.empty() || parse_http_address(text)
               ? ""
               : "must be HOST:PORT, unix:PATH, or empty for none";
}

std::string network(const std::string &text) {
    return Network::parse(text) ? "" : "must be an address or a network as 10.0.0.0/8";
}

std::string header_name(const std::string &text) {
    const bool is_name =
        !text.empty() &&
        text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-") ==
            std::string::npos;
    return is_name ? "" : "must be the name of a header, such as X-Remote-User";
}

void add_connection(CLI::App &command, CommandConfig &config) {
    command
        .add_option("-d,--dbname", config.conninfo,
                    "Database name, libpq connection string or URI (default: PG* environment)")
        ->envname("STACKSAGA_DBNAME")
        ->type_name("CONNINFO");
}

void add_databases(CLI::App &command, CommandConfig &config) {
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

/// An option of the daemon as its help, its environment and the manual page show it.
struct OptionText {
    const char *flag;
    const char *environment;
    const char *type;
    const char *help;
};

template <class Value, class Check>
CLI::Option *add_checked(CLI::App &command, Value &value, Check check, const OptionText &text) {
    return command.add_option(text.flag, value, text.help)
        ->envname(text.environment)
        ->check(check, "")
        ->type_name(text.type);
}

/// The same, to be repeated or given as a list with commas.
template <class Check>
CLI::Option *add_list(CLI::App &command, std::vector<std::string> &values, Check check,
                      const OptionText &text) {
    return add_checked(command, values, check, text)->delimiter(',');
}

/// An agent is a node: workers belong to it by name, so the name must stay the same.
void add_agent(CLI::App &command, CommandConfig &config) {
    add_checked(command, config.publisher, not_empty,
                {"--name", "STACKSAGA_NAME", "NAME",
                 "Name of this node; it replaces a node that already has the name"})
        ->required();
    add_checked(command, config.weight, weight,
                {"--weight", "STACKSAGA_WEIGHT", "NUMBER",
                 "Share of the ring, relative to the weights of other nodes"})
        ->capture_default_str();
}

void add_rings(CLI::App &command, Words &words) {
    add_list(command, words.regions, not_empty,
             {"--region", "STACKSAGA_REGION", "NAME",
              "Region of a ring; repeat for more rings, paired with --cluster in order"})
        ->capture_default_str();
    add_list(command, words.clusters, not_empty,
             {"--cluster", "STACKSAGA_CLUSTER", "NAME",
              "Cluster of a ring; repeat for more rings (one region serves them all)"})
        ->capture_default_str();
}

void add_print_config(CLI::App &command, CommandConfig &config) {
    command.add_flag("--print-config", config.print_only,
                     "Print every setting with its source (flag, environment, file, default) and "
                     "exit, without connecting");
}

void add_publisher(CLI::App &command, CommandConfig &config) {
    add_checked(command, config.publisher, not_empty,
                {"--name", "STACKSAGA_NAME", "NAME",
                 "Name of this daemon in the windows that it publishes (default: HOST:PID)"});
}

/// Access to the page. Without the first two options it is read-only.
void add_operators(CLI::App &command, CommandConfig &config, Words &words) {
    command
        .add_option("--operators-file", config.access.operators_file,
                    "File of mode 0600, or a credential of systemd, with lines NAME:HASH, as "
                    "hash-password makes them: these operators may log in and act. --http must be "
                    "a loopback address or a socket")
        ->envname("STACKSAGA_OPERATORS_FILE")
        ->type_name("FILE");
    add_checked(command, config.access.operator_header, header_name,
                {"--operator-header", "STACKSAGA_OPERATOR_HEADER", "NAME",
                 "Header in which a proxy names the operator that it has authenticated; it is read "
                 "only on a Unix socket and from --trusted-proxy"});
    add_list(command, words.trusted_proxies, network,
             {"--trusted-proxy", "STACKSAGA_TRUSTED_PROXY", "CIDR",
              "Network whose --operator-header and X-Forwarded-For are trusted; "
              "repeat for more"});
    command
        .add_flag(
            "--hide-payloads", config.access.hide_payloads,
            "Hide payloads, inputs and attributes from everybody; anonymous viewers never see them")
        ->envname("STACKSAGA_HIDE_PAYLOADS");
}

/// The options of both roles of the daemon.
void add_daemon(CLI::App &command, CommandConfig &config, Words &words) {
    add_checked(command, words.http, host_and_port,
                {"--http", "STACKSAGA_HTTP", "ADDRESS",
                 "Address that serves /livez, /readyz, /health, /metrics, /status and the page: "
                 "HOST:PORT, or unix:PATH for a socket that user and group may use; empty for "
                 "none"})
        ->capture_default_str();
    add_checked(command, words.metrics_http, host_and_port,
                {"--metrics-http", "STACKSAGA_METRICS_HTTP", "ADDRESS",
                 "Another address that serves /metrics and the probes alone; --http then serves no "
                 "/metrics"});
    add_list(command, words.allowed_hosts, not_empty,
             {"--allowed-host,--http-host", "STACKSAGA_ALLOWED_HOST", "NAME",
              "Host name that HTTP requests may use, besides localhost, IP addresses and the host "
              "of --http, and the origin of the page behind a proxy; repeat for more"});
    add_operators(command, config, words);
    add_checked(command, words.log_format, one_of(log_formats),
                {"--log-format", "STACKSAGA_LOG_FORMAT", "FORMAT", "logfmt or json"})
        ->capture_default_str();
    add_checked(command, words.log_level, one_of(log_levels),
                {"--log-level", "STACKSAGA_LOG_LEVEL", "LEVEL", "debug, info, warn or error"})
        ->capture_default_str();
}

std::string http_url(const std::string &text) {
    return text.empty() || text.starts_with("http://") || text.starts_with("https://")
               ? ""
               : "must be http://HOST:PORT or https://HOST:PORT, or empty for none";
}

std::string header_line(const std::string &text) {
    const std::size_t colon = text.find(':');
    return colon == std::string::npos || !header_name(text.substr(0, colon)).empty() ||
                   text.find_first_of("\r\n") != std::string::npos
               ? "must be NAME: VALUE"
               : "";
}

void add_otlp(CLI::App &command, CommandConfig &config) {
    command
        .add_option("--otlp-endpoint", config.otlp.endpoint,
                    "Collector of OpenTelemetry, such as http://127.0.0.1:4318, that gets the "
                    "spans of sagas with a traceparent when they have finished")
        ->envname("STACKSAGA_OTLP_ENDPOINT")
        ->check(http_url, "")
        ->type_name("URL");
    command
        .add_option("--otlp-header", config.otlp.headers,
                    "Header of the requests to the collector; repeat for more. Its value is not "
                    "printed: keep a token in the environment")
        ->envname("STACKSAGA_OTLP_HEADER")
        ->allow_extra_args(false)
        ->check(header_line, "")
        ->type_name("NAME: VALUE");
}

void add_output(CLI::App &command, CommandConfig &config, Words &words) {
    command.add_option("-o,--output", words.output, "table or json")
        ->check(one_of(outputs), "")
        ->type_name("FORMAT")
        ->capture_default_str();
    command.add_flag("--json", words.json, "The same as --output json");
    if (config.command != Command::act) // it would act again every two seconds
        command.add_flag("--watch", config.watch,
                         "Read and print again every two seconds until stopped");
}

/// Of the commands that need no database.
void add_words(CommandWords &c) {
    if (c.text->command == Command::hash_password)
        c.app
            ->add_option("name", c.config.key,
                         "Name of the operator; the password is read from standard input")
            ->required()
            ->type_name("NAME");
    else
        c.app->add_option("shell", c.config.key, "bash or zsh")->required()->type_name("SHELL");
}

} // namespace

void add_options(CommandWords &c, const std::string &publisher) {
    CLI::App &app = *c.app;
    app.footer(fmt::format("Examples:\n{}\n{}", c.text->examples, help_footer()));
    c.config.command = c.text->command;
    c.config.publisher = publisher;
    c.config.command_name = app.get_name();
    if (c.text->command == Command::hash_password || c.text->command == Command::completion) {
        add_words(c);
        return;
    }
    if (c.text->command == Command::master || c.text->command == Command::check_config)
        add_databases(app, c.config);
    else
        add_connection(app, c.config);
    app.add_flag("--session-pooler", c.config.session_pooler,
                 "Allow a pooler, if it gives each client its own session");
    switch (c.text->command) {
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
        add_daemon(app, c.config, c.words);
        add_otlp(app, c.config);
        break;
    case Command::agent:
        add_rings(app, c.words);
        add_agent(app, c.config);
        add_print_config(app, c.config);
        add_daemon(app, c.config, c.words);
        break;
    case Command::ring:
        add_rings(app, c.words);
        [[fallthrough]];
    case Command::status:
    case Command::doctor:
    case Command::queues:
    case Command::schedules:
    case Command::definitions:
    case Command::dead_messages:
        add_output(app, c.config, c.words);
        break;
    case Command::sagas:
        add_filter(app, c.config);
        add_output(app, c.config, c.words);
        break;
    case Command::saga:
        app.add_option("key", c.config.key, "The id or the key of the saga")
            ->required()
            ->type_name("SAGA");
        add_output(app, c.config, c.words);
        break;
    case Command::act:
        add_action(app, c.config);
        add_output(app, c.config, c.words);
        break;
    case Command::hash_password:
    case Command::completion:
        break;
    case Command::locate:
        app.add_option("key", c.config.key, "The key, as it is passed to stacksaga.token()")
            ->required()
            ->type_name("KEY");
        add_output(app, c.config, c.words);
        break;
    }
}

} // namespace stacksaga::coordinator
