// stacksaga-coordinator: wires configuration, log, database and role together, and turns signals
// and errors into an end.

#include "clock.hpp"
#include "config.hpp"
#include "errors.hpp"
#include "http_server.hpp"
#include "log.hpp"
#include "look.hpp"
#include "master.hpp"
#include "observer.hpp"
#include "pages.hpp"
#include "pg_control_store.hpp"
#include "service.hpp"
#include "worker.hpp"

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/error.hpp>
#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/system_error.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <random>
#include <unistd.h>

namespace {

using namespace stacksaga::coordinator;

/// "host:pid": tells coordinators apart in the log of windows.
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

/// The exit code for the way in which a role ended.
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

/// Pages over HTTP beside the daemon's work.
class Web {
public:
    Web(asio::io_context &io, const Config &config, Log &log, std::string role)
        : observer_(io.get_executor(), config.conninfo,
                    [&log](std::string_view notice) {
                        log.debug("notice", {{"notice", notice}});
                    }),
          pages_(observer_, std::move(role)), server_(io, config.http, [this](HttpRequest request) {
              return pages_.answer(std::move(request));
          }) {
        if (config.http.host.empty() || config.once)
            return;
        try {
            server_.start();
            log.info("listening",
                     {{"http", fmt::format("{}:{}", config.http.host, config.http.port)}});
        } catch (const std::runtime_error &error) {
            if (!config.http_is_default)
                throw;
            log.warn("no pages", {{"error", error.what()}, {"hint", "choose --http HOST:PORT"}});
        }
    }
    Web(const Web &) = delete;
    Web &operator=(const Web &) = delete;
    ~Web() { stop(); }

    void stop() noexcept {
        server_.stop();
        observer_.close();
    }

private:
    Observer observer_;
    Pages pages_;
    HttpServer server_;
};

/// Runs a command that looks; what it cannot ask goes to standard error.
int run_look(const Config &config) {
    asio::io_context io(1);
    asio::cancellation_signal stop;
    asio::signal_set signals(io, SIGINT, SIGTERM);
    signals.async_wait([&](const asio::error_code &error, int) {
        if (!error)
            stop.emit(asio::cancellation_type::terminal);
    });
    int code = exit_code::ok;
    asio::co_spawn(io, look(io, config),
                   asio::bind_cancellation_slot(
                       stop.slot(), [&](const std::exception_ptr &failure, int result) {
                           signals.cancel();
                           code = result;
                           try {
                               if (failure)
                                   std::rethrow_exception(failure);
                           } catch (const StoreError &error) {
                               std::fputs(explain(error).c_str(), stderr);
                               code = exit_code_of(error.kind);
                           } catch (const asio::system_error &error) {
                               if (error.code() != asio::error::operation_aborted)
                                   throw;
                               code = exit_code::ok;
                           }
                       }));
    io.run();
    return code;
}

/// What a dry run prints of one ring; "new" counts the slots that change their owner.
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
    const auto start = std::chrono::floor<std::chrono::milliseconds>(proposal.window_start);
    std::fputs(fmt::format("Ring {}/{}, window of {}: {} slots of {} move\n{}\n", ring.region,
                           ring.cluster, format_time(start), proposal.moved, slots.size(),
                           format_table({"range_start", "range_end", "slots", "node", "new"}, rows))
                   .c_str(),
               stdout);
}

int run_master(const Config &config, Log &log, const Service::ReadConfig &read_again) {
    asio::io_context io(1);
    PgControlStore store(io.get_executor(), config.conninfo, [&log](std::string_view notice) {
        log.info("notice", {{"notice", notice}});
    });
    SteadyClock clock(io.get_executor());
    Service service(io, log, config, read_again);
    MasterSettings settings{
        .rings = config.rings,
        .publisher = config.publisher,
        .once = config.once,
        .seed = std::random_device{}(),
        .on_status = [&service](const std::string &status) { service.status(status); },
        .dry_run = {}};
    if (config.dry_run)
        settings.dry_run = print_proposal;
    Master master(store, clock, log, std::move(settings));
    Web web(io, config, log, "master");
    const std::exception_ptr failure =
        service.run(master.run(), {.drain = {},
                                   .grace = {},
                                   .dump = [&] { master.log_state(); },
                                   .end = [&] { web.stop(); }});
    return conclude(log, failure, service.stop_signal());
}

Duration from_seconds(double seconds) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

int run_worker(const Config &config, Log &log, const Service::ReadConfig &read_again) {
    asio::io_context io(1);
    Service service(io, log, config, read_again);
    Worker worker(io.get_executor(), config.conninfo, log,
                  {.ring = config.rings.front(),
                   .node = config.publisher,
                   .batch = config.batch,
                   .poll = from_seconds(config.poll_seconds),
                   .seed = std::random_device{}(),
                   .on_status = [&service](const std::string &status) { service.status(status); }});
    Web web(io, config, log, "worker");
    const std::exception_ptr failure =
        service.run(worker.run(), {.drain = [&] { worker.drain(); },
                                   .grace = from_seconds(config.grace_seconds),
                                   .dump = [&] { worker.log_state(); },
                                   .end = [&] { web.stop(); }});
    return conclude(log, failure, service.stop_signal());
}

} // namespace

int main(int argc, char **argv) {
    // Writing to a log pipe whose reader is gone, or to a server that went away, is an error, not
    // an end.
    std::signal(SIGPIPE, SIG_IGN);
    try {
        const CommandLine command_line = parse_command_line(argc, argv, default_publisher());
        std::fputs(command_line.output.c_str(), stdout);
        std::fputs(command_line.error.c_str(), stderr);
        if (!command_line.config)
            return std::fflush(stdout) == 0 ? command_line.exit_code : exit_code::internal;
        const Config &config = *command_line.config;
        if (const auto complaint = conninfo_complaint(config.conninfo)) {
            std::fputs(
                fmt::format("--dbname: {}\nRun with --help for more information.\n", *complaint)
                    .c_str(),
                stderr);
            return exit_code::usage;
        }
        if (config.print_only) {
            std::fputs(config.printed.c_str(), stdout);
            return std::fflush(stdout) == 0 ? exit_code::ok : exit_code::internal;
        }
        if (config.command != Command::master && config.command != Command::worker)
            return run_look(config);
        const auto read_again = [&] { return parse_command_line(argc, argv, config.publisher); };
        Log log(config.log_format, config.log_level, write_to_stderr);
        try {
            return config.command == Command::master ? run_master(config, log, read_again)
                                                     : run_worker(config, log, read_again);
        } catch (const std::exception &error) {
            log.error(
                "stopping",
                {{"class", "fatal"}, {"error", error.what()}, {"exit_code", exit_code::internal}});
        }
    } catch (const std::exception &error) {
        std::fputs(fmt::format("stacksaga-coordinator: {}\n", error.what()).c_str(), stderr);
    }
    return exit_code::internal;
}
