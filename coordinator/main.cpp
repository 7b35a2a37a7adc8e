// stacksaga-coordinator: connects configuration, log, database and role, and turns signals and
// errors into exit codes.

#include "base/log.hpp"
#include "base/service.hpp"
#include "base/task_group.hpp"
#include "base/time.hpp"
#include "cli/command_line.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "db/conninfo.hpp"
#include "db/store_error.hpp"
#include "otlp/exporter.hpp"
#include "roles/agent_role.hpp"
#include "roles/master_role.hpp"
#include "roles/pg_control_store.hpp"
#include "web/operators.hpp"
#include "web/site.hpp"

#include <asio/error.hpp>
#include <asio/io_context.hpp>
#include <asio/system_error.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <deque>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <termios.h>
#include <unistd.h>
#include <vector>

namespace {

using namespace stacksaga::coordinator;

/// "host:pid": identifies the coordinator that published a window.
std::string default_publisher() {
    std::array<char, 256> host{};
    if (::gethostname(host.data(), host.size() - 1) != 0)
        return fmt::format("coordinator:{}", ::getpid());
    return fmt::format("{}:{}", host.data(), ::getpid());
}

int report(Log &log, const StoreError &error) {
    const int code = exit_code_of(error.kind);
    std::vector<LogField> fields = fields_of(error);
    fields.emplace_back("exit_code", code);
    log.event(LogLevel::error, "stopping", fields);
    return code;
}

/// The exit code for the failure or signal that ended a role.
int conclude(Log &log, const std::exception_ptr &failure, int stop_signal) {
    try {
        if (failure)
            std::rethrow_exception(failure);
    } catch (const StoreError &error) {
        return report(log, error);
    } catch (const asio::system_error &error) {
        if (stop_signal == 0 || error.code() != asio::error::operation_aborted)
            throw;
    }
    if (stop_signal != 0)
        log.info("stopped", {{"signal", stop_signal == SIGINT ? "SIGINT" : "SIGTERM"}});
    return exit_code::ok;
}

int run_completion(const CommandConfig &config) {
    const std::string script = completion_script(config.key);
    print_out(script);
    if (!script.empty())
        return exit_code::ok;
    std::fputs("There are completion scripts for bash and zsh.\n", stderr);
    return exit_code::usage;
}

/// Reads a line without showing it on a terminal.
std::string read_password() {
    termios shown{};
    const bool is_terminal = ::tcgetattr(STDIN_FILENO, &shown) == 0;
    if (is_terminal) {
        std::fputs("Password: ", stderr);
        termios hidden = shown;
        hidden.c_lflag &= ~static_cast<tcflag_t>(ECHO);
        ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden);
    }
    std::string password;
    std::getline(std::cin, password);
    if (is_terminal) {
        ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &shown);
        std::fputs("\n", stderr);
    }
    return password;
}

int run_hash_password(const CommandConfig &config) {
    if (!is_operator_name(config.key)) {
        std::fputs("A name has 1 to 63 bytes, no control characters and no colon.\n", stderr);
        return exit_code::usage;
    }
    const std::string password = read_password();
    if (password.empty()) {
        std::fputs("No password was given.\n", stderr);
        return exit_code::usage;
    }
    print_out(operator_line(config.key, password) + "\n");
    return exit_code::ok;
}

/// Runs a command that reads; prints an error to standard error.
int run_reading_command(const CommandConfig &config) {
    asio::io_context io(1);
    int code = exit_code::ok;
    auto task = [&]() -> asio::awaitable<void> { code = co_await run_command(io, config); };
    try {
        run_until_stopped(io, task());
    } catch (const StoreError &error) {
        std::fputs(explain(error).c_str(), stderr);
        code = exit_code_of(error.kind);
    }
    return code;
}

/// Prints one ring of a dry run; "new" counts the slots that change their owner.
void print_proposal(const RingName &ring, const std::vector<Slot> &slots,
                    const Proposal &proposal) {
    std::vector<std::vector<std::string>> rows;
    for (const Grant &grant : proposal.grants) {
        const auto held = std::ranges::count_if(slots, [&](const Slot &slot) {
            return slot.range_start >= grant.range_start && slot.range_end <= grant.range_end;
        });
        const auto kept = std::ranges::count_if(slots, [&](const Slot &slot) {
            return slot.range_start >= grant.range_start && slot.range_end <= grant.range_end &&
                   slot.owner == grant.node;
        });
        rows.push_back({std::to_string(grant.range_start), std::to_string(grant.range_end),
                        std::to_string(held), grant.node, std::to_string(held - kept)});
    }
    print_out(
        fmt::format("Ring {}/{}, window of {}: {} slots of {} move\n{}\n", ring.region,
                    ring.cluster, format_time(proposal.window_start), proposal.moved, slots.size(),
                    format_table({"range_start", "range_end", "slots", "node", "new"}, rows)));
}

/// Serves one of several databases: an error that ends its master ends no other one; the master
/// starts again.
asio::awaitable<void> serve_beside_others(Master &master, Clock &clock, Log &log) {
    constexpr Duration pause = std::chrono::seconds(5);
    for (;;) {
        try {
            co_await master.run();
            co_return;
        } catch (const StoreError &error) {
            std::vector<LogField> fields = fields_of(error);
            fields.emplace_back("retry_in_s", pause / std::chrono::seconds(1));
            log.event(LogLevel::error, "database not served", fields);
        }
        co_await clock.wait_until(clock.now() + pause);
    }
}

Connection::NoticeHandler log_notices(Log &log) {
    return [&log](std::string_view notice) { log.info("notice", {{"notice", notice}}); };
}

/// The objects that serve one database; `log` names it where there are several.
struct ServedDatabase {
    ServedDatabase(asio::io_context &io, const std::string &conninfo, Log log_of_it,
                   const MasterSettings &settings)
        : log(std::move(log_of_it)), store(io.get_executor(), conninfo, log_notices(log)),
          clock(io.get_executor()), master(store, clock, log, settings) {}

    Log log;
    PgControlStore store;
    SteadyClock clock;
    Master master;
};

MasterSettings master_settings(const Config &config, const Service &service) {
    MasterSettings settings{
        .rings = config.rings,
        .publisher = config.publisher,
        .once = config.once,
        .seed = std::random_device{}(),
        .on_status = [&service](const std::string &status) { service.status(status); },
        .dry_run = {}};
    if (config.dry_run)
        settings.dry_run = print_proposal;
    return settings;
}

/// A daemon that ends after a window exports nothing.
OtlpSettings otlp_settings(const Config &config) {
    return config.once || config.dry_run ? OtlpSettings{} : config.otlp;
}

int run_master(const Config &config, Log &log, const Service::ReadConfig &read_again) {
    asio::io_context io(1);
    Service service(io, log, config, read_again);
    const bool is_alone = config.databases.size() == 1;
    std::deque<ServedDatabase> databases;
    for (const std::string &conninfo : config.databases)
        databases.emplace_back(io, conninfo,
                               is_alone ? log : log.with({"on", database_label(conninfo)}),
                               master_settings(config, service));
    Site site(io, config, log, "master");
    TraceExporters exporters(io, config.databases, otlp_settings(config), log);
    std::vector<asio::awaitable<void>> tasks;
    for (ServedDatabase &each : databases)
        tasks.push_back(is_alone || config.once
                            ? each.master.run()
                            : serve_beside_others(each.master, each.clock, each.log));
    const auto dump = [&] {
        for (ServedDatabase &each : databases)
            each.master.log_state();
    };
    const auto end = [&] {
        site.stop();
        exporters.close();
    };
    const std::exception_ptr failure =
        service.run(run_task_group(std::move(tasks), config.once),
                    {.dump = dump, .end = end, .reload = [&] { site.reload(); }});
    return conclude(log, failure, service.stop_signal());
}

int run_agent(const Config &config, Log &log, const Service::ReadConfig &read_again) {
    asio::io_context io(1);
    PgControlStore store(io.get_executor(), config.conninfo, log_notices(log));
    SteadyClock clock(io.get_executor());
    Service service(io, log, config, read_again);
    Agent agent(store, clock, log,
                {.ring = config.rings.front(),
                 .name = config.publisher,
                 .weight = config.weight,
                 .seed = std::random_device{}(),
                 .on_status = [&service](const std::string &status) { service.status(status); }});
    Site site(io, config, log, "agent");
    const std::exception_ptr failure = service.run(agent.run(), {.dump = [&] { agent.log_state(); },
                                                                 .end = [&] { site.stop(); },
                                                                 .reload = [&] { site.reload(); }});
    if (service.stop_signal() != 0)
        run_until_stopped(io, agent.leave()); // another signal ends this as well
    return conclude(log, failure, service.stop_signal());
}

/// Runs a role of the daemon until it ends.
int run_role(const CommandConfig &config, const Service::ReadConfig &read_again) {
    Log log(config.log_format, config.log_level, write_to_stderr);
    try {
        return config.command == Command::agent ? run_agent(config, log, read_again)
                                                : run_master(config, log, read_again);
    } catch (const OperatorsError &error) {
        log.error("stopping", {{"error", error.what()}, {"exit_code", exit_code::bad_config}});
        return exit_code::bad_config;
    } catch (const std::exception &error) {
        log.error(
            "stopping",
            {{"class", "fatal"}, {"error", error.what()}, {"exit_code", exit_code::internal}});
    }
    return exit_code::internal;
}

/// Runs the command of a command line.
int run(int argc, const char *const *argv) {
    const CommandLine command_line = parse_command_line(argc, argv, default_publisher());
    std::fputs(command_line.error.c_str(), stderr);
    print_out(command_line.output);
    if (!command_line.config)
        return command_line.exit_code;
    const CommandConfig &config = *command_line.config;
    Connection::trust_poolers(config.session_pooler);
    for (const std::string &conninfo : config.databases)
        if (const auto complaint = conninfo_complaint(conninfo)) {
            std::fputs(
                fmt::format("--dbname: {}\nRun with --help for more information.\n", *complaint)
                    .c_str(),
                stderr);
            return exit_code::usage;
        }
    if (config.print_only) {
        print_out(config.printed);
        return exit_code::ok;
    }
    if (config.command == Command::completion)
        return run_completion(config);
    if (config.command == Command::hash_password)
        return run_hash_password(config);
    if (config.command != Command::master && config.command != Command::agent) {
        std::signal(SIGPIPE, SIG_DFL); // like any command whose output pipe closes
        return run_reading_command(config);
    }
    return run_role(config, [&]() -> Config {
        const CommandLine line = parse_command_line(argc, argv, config.publisher);
        if (!line.config)
            throw std::runtime_error(line.error);
        return *line.config;
    });
}

} // namespace

int main(int argc, char **argv) {
    // Writing to a log pipe or a server that closed must be an error, not the end of the process.
    std::signal(SIGPIPE, SIG_IGN);
    try {
        return run(argc, argv);
    } catch (const std::exception &error) {
        std::fputs(fmt::format("stacksaga-coordinator: {}\n", error.what()).c_str(), stderr);
    }
    return exit_code::internal;
}
