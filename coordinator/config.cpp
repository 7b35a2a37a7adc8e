#include "config.hpp"

#include "errors.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <sstream>

namespace stacksaga::coordinator {
namespace {

constexpr const char *description =
    "Coordinates the token rings of a database that has the extension stacksaga.";

constexpr const char *footer =
    "The connection is libpq's: PG* environment variables, service and password files hold unless\n"
    "--dbname says otherwise. Any number of coordinators may serve the same rings.\n"
    "\n"
    "Exit codes: 0 done or stopped by a signal, 64 usage, 65 no such ring (--once), 69 database\n"
    "unavailable (--once), 70 internal error, 75 refused for now (--once), 77 permission denied,\n"
    "78 extension missing or too old.";

/// Values as they were given.
struct Words {
    std::vector<std::string> regions{"default"};
    std::vector<std::string> clusters{"default"};
    std::string log_format = "logfmt";
    std::string log_level = "info";
};

const std::map<std::string, LogFormat> formats{{"logfmt", LogFormat::logfmt},
                                               {"json", LogFormat::json}};
const std::map<std::string, LogLevel> levels{{"debug", LogLevel::debug},
                                             {"info", LogLevel::info},
                                             {"warn", LogLevel::warn},
                                             {"error", LogLevel::error}};

/// A check that lets the words of a table pass.
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

void add_master(CLI::App &app, Config &config, Words &words) {
    CLI::App *master =
        app.add_subcommand("master", "Publish the windows of rings, each before it opens");
    master
        ->add_option("-d,--dbname", config.conninfo,
                     "Database name, libpq connection string or URI (default: PG* environment)")
        ->envname("STACKSAGA_DBNAME")
        ->type_name("CONNINFO");
    master
        ->add_option("--region", words.regions,
                     "Region of a ring; repeat for more rings, paired with --cluster in order")
        ->envname("STACKSAGA_REGION")
        ->delimiter(',')
        ->check(not_empty, "")
        ->type_name("NAME")
        ->capture_default_str();
    master
        ->add_option("--cluster", words.clusters,
                     "Cluster of a ring; repeat for more rings (one region serves them all)")
        ->envname("STACKSAGA_CLUSTER")
        ->delimiter(',')
        ->check(not_empty, "")
        ->type_name("NAME")
        ->capture_default_str();
    master
        ->add_option("--name", config.publisher,
                     "Name that published windows are signed with (default: HOST:PID)")
        ->envname("STACKSAGA_NAME")
        ->check(not_empty, "")
        ->type_name("NAME");
    master->add_option("--log-format", words.log_format, "logfmt or json")
        ->envname("STACKSAGA_LOG_FORMAT")
        ->check(one_of(formats), "")
        ->type_name("FORMAT")
        ->capture_default_str();
    master->add_option("--log-level", words.log_level, "debug, info, warn or error")
        ->envname("STACKSAGA_LOG_LEVEL")
        ->check(one_of(levels), "")
        ->type_name("LEVEL")
        ->capture_default_str();
    master->add_flag(
        "--once", config.once,
        "Publish the next window of each ring now, unless that has been done, and exit");
    master->footer(footer);
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

CommandLine parse_command_line(int argc, const char *const *argv,
                               const std::string &default_publisher) {
    CommandLine result;
    Config config;
    Words words;
    config.publisher = default_publisher;

    CLI::App app(description, "stacksaga-coordinator");
    app.set_version_flag("--version", "stacksaga-coordinator " STACKSAGA_VERSION);
    app.require_subcommand(1);
    app.footer(footer);
    add_master(app, config, words);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        std::ostringstream out;
        std::ostringstream err;
        const int code = app.exit(error, out, err);
        result.exit_code = code == 0 ? exit_code::ok : exit_code::usage;
        result.output = out.str();
        result.error = err.str();
        return result;
    }
    auto rings = rings_of(words.regions, words.clusters);
    if (!rings) {
        result.exit_code = exit_code::usage;
        result.error =
            "--region and --cluster: give as many of one as of the other, or one of either\n"
            "Run with --help for more information.\n";
        return result;
    }
    config.rings = std::move(*rings);
    config.log_format = formats.at(words.log_format);
    config.log_level = levels.at(words.log_level);
    result.config = std::move(config);
    return result;
}

} // namespace stacksaga::coordinator
