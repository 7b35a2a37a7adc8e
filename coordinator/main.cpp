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

#include <asio/bind_cancellation_slot.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/error.hpp>
#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/system_error.hpp>
#include <fmt/format.h>

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

/// The exit code for the way in which the master ended.
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
    Web(asio::io_context &io, const Config &config, Log &log)
        : observer_(io.get_executor(), config.conninfo,
                    [&log](std::string_view notice) {
                        log.debug("notice", {{"notice", notice}});
                    }),
          pages_(observer_, "master"), server_(io, config.http, [this](HttpRequest request) {
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

int run_master(const Config &config, Log &log) {
    asio::io_context io(1);
    PgControlStore store(io.get_executor(), config.conninfo, [&log](std::string_view notice) {
        log.info("notice", {{"notice", notice}});
    });
    SteadyClock clock(io.get_executor());
    Master master(store, clock, log,
                  {.rings = config.rings,
                   .publisher = config.publisher,
                   .once = config.once,
                   .seed = std::random_device{}()});

    Web web(io, config, log);

    int stop_signal = 0;
    asio::cancellation_signal stop;
    asio::signal_set signals(io, SIGINT, SIGTERM);
    signals.async_wait([&](const asio::error_code &error, int number) {
        if (error)
            return; // the master ended by itself
        stop_signal = number;
        stop.emit(asio::cancellation_type::terminal);
    });

    std::exception_ptr failure;
    asio::co_spawn(io, master.run(),
                   asio::bind_cancellation_slot(stop.slot(), [&](std::exception_ptr thrown) {
                       failure = std::move(thrown);
                       signals.cancel();
                       web.stop();
                   }));
    io.run();
    return conclude(log, failure, stop_signal);
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
        if (config.command != Command::master)
            return run_look(config);
        Log log(config.log_format, config.log_level, write_to_stderr);
        try {
            return run_master(config, log);
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
