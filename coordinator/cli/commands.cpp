#include "cli/commands.hpp"

#include "cli/action_commands.hpp"
#include "cli/output.hpp"
#include "cli/saga_commands.hpp"
#include "db/conninfo.hpp"
#include "db/shared_connection.hpp"
#include "db/store_error.hpp"

#include <asio/steady_timer.hpp>
#include <asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <unistd.h>

namespace stacksaga::coordinator {
namespace {

constexpr Duration progress_period = std::chrono::seconds(10);
constexpr Duration watch_period = std::chrono::seconds(2);

constexpr const char *SQL_RINGS =
    "SELECT region, cluster, epoch, window_start, publisher, active_nodes, total_nodes,"
    "       pg_catalog.round((100 * coverage)::numeric, 1) || ' %' AS owned, oldest_due"
    "  FROM stacksaga.ring_status ORDER BY region, cluster";
constexpr const char *SQL_NODES =
    "SELECT region, cluster, node, kind, state, pg_catalog.round((100 * share)::numeric, 1) || ' %' AS share,"
    "       load, pg_catalog.date_trunc('milliseconds', heartbeat_age) AS heartbeat_age, progress,"
    "       pg_catalog.date_trunc('milliseconds', checkpoint_age) AS checkpoint_age"
    "  FROM stacksaga.nodes ORDER BY region, cluster, node";
struct ProblemColumns {
    enum { severity, check_name, detail, fix };
};
constexpr const char *SQL_PROBLEMS =
    "SELECT severity, check_name, detail, fix FROM stacksaga.doctor()";
constexpr const char *SQL_RANGES =
    "SELECT x.range_start, x.range_end, x.slots, x.epoch, x.node, x.next_node, x.next_from"
    "  FROM pg_catalog.jsonb_array_elements(stacksaga.status() -> 'rings') AS r,"
    "       pg_catalog.jsonb_to_recordset(r -> 'ranges') AS x(range_start bigint,"
    "           range_end bigint, slots integer, epoch bigint, node text, next_node text,"
    "           next_from timestamptz)"
    " WHERE r ->> 'region' = $1 AND r ->> 'cluster' = $2 ORDER BY x.range_start";
constexpr const char *SQL_LOCATE =
    "SELECT token, slot, node, valid_until, next_node FROM stacksaga.locate($1::text)";

constexpr const char *SQL_SAGAS =
    "SELECT status, sagas || CASE WHEN more THEN ' or more' ELSE '' END AS sagas"
    "  FROM pg_catalog.jsonb_to_recordset(stacksaga.status() -> 'sagas')"
    "       AS x(status text, sagas bigint, more boolean)";
constexpr const char *SQL_SUBSCRIPTIONS =
    "SELECT subscription, topic, coalesce(handler, 'services') AS handler,"
    "       pg_catalog.round(lag_seconds::numeric, 1) || ' s' AS unread_for, held, dead, " PAUSED
    ","
    "       CASE WHEN released_until IS NOT NULL"
    "            THEN pg_catalog.concat_ws(': ', 'until '"
    "                     || pg_catalog.date_trunc('seconds', released_until),"
    "                     pg_catalog.left(release_reason, 80)) END AS given_back"
    "  FROM pg_catalog.jsonb_to_recordset(stacksaga.status() -> 'subscriptions')"
    "       AS x(subscription text, topic text, handler text, lag_seconds double precision,"
    "            held bigint, dead bigint, paused boolean, paused_until timestamptz,"
    "            released_until timestamptz, release_reason text)";
constexpr const char *SQL_LOCATE_JSON =
    "SELECT pg_catalog.jsonb_pretty(pg_catalog.jsonb_build_object('token', token::text,"
    "           'slot', slot, 'node', node, 'valid_until', valid_until, 'next_node', next_node))"
    "  FROM stacksaga.locate($1::text)";
constexpr const char *SQL_STATUS_JSON = "SELECT pg_catalog.jsonb_pretty(stacksaga.status())";
constexpr const char *SQL_RING_JSON =
    "SELECT pg_catalog.jsonb_pretty(r)"
    "  FROM pg_catalog.jsonb_array_elements(stacksaga.status() -> 'rings') AS r"
    " WHERE r ->> 'region' = $1 AND r ->> 'cluster' = $2";
constexpr const char *SQL_DOCTOR_JSON =
    "SELECT pg_catalog.jsonb_pretty(coalesce(pg_catalog.jsonb_agg(pg_catalog.to_jsonb(d)), '[]'))"
    "  FROM stacksaga.doctor() AS d";

/// Prints to a terminal every ten seconds, as long as it lives, that the command waits for the
/// database.
class Progress {
public:
    explicit Progress(asio::io_context &io) : ticker_(std::make_shared<Ticker>(io)) {
        if (::isatty(STDERR_FILENO) != 0)
            report_later(ticker_, progress_period);
    }
    Progress(const Progress &) = delete;
    Progress &operator=(const Progress &) = delete;
    ~Progress() {
        ticker_->active = false;
        ticker_->timer.cancel();
    }

private:
    struct Ticker {
        explicit Ticker(asio::io_context &io) : timer(io) {}
        asio::steady_timer timer;
        bool active = true;
    };

    static void report_later(const std::shared_ptr<Ticker> &ticker, Duration waited) {
        ticker->timer.expires_after(progress_period);
        ticker->timer.async_wait([ticker, waited](const asio::error_code &error) {
            if (error || !ticker->active)
                return;
            std::fputs(fmt::format("Waiting for the database, {} s so far\n",
                                   std::chrono::duration_cast<std::chrono::seconds>(waited).count())
                           .c_str(),
                       stderr);
            report_later(ticker, waited + progress_period);
        });
    }

    std::shared_ptr<Ticker> ticker_;
};

class CommandRunner {
public:
    CommandRunner(asio::io_context &io, const CommandConfig &config, std::string conninfo)
        : io_(io), config_(config), conninfo_(std::move(conninfo)),
          connection_(io.get_executor(), [](std::string_view notice) {
              std::fputs(fmt::format("{}\n", notice).c_str(), stderr);
          }) {}

    asio::awaitable<void> open() {
        if (connection_.is_open())
            co_return;
        co_await connection_.open(conninfo_);
        version_ = co_await require_extension(connection_, command_deadline);
    }

    asio::awaitable<int> run() {
        switch (config_.command) {
        case Command::status:
            co_return co_await status();
        case Command::ring:
            co_return co_await ring();
        case Command::locate:
            co_return co_await locate();
        case Command::doctor:
            co_return co_await doctor();
        case Command::check_config: // connects, and no more
            out_ += fmt::format("{}connected: the database has stacksaga {}\n", config_.printed,
                                version_);
            co_return 0;
        case Command::sagas:
        case Command::saga:
        case Command::queues:
        case Command::schedules:
        case Command::definitions:
        case Command::dead_messages:
            co_return take(co_await list_command(connection_, config_));
        case Command::act:
            co_return take(co_await action_command(io_.get_executor(), connection_, config_));
        case Command::hash_password: // these need no database
        case Command::completion:
        case Command::master: // the daemon's roles
        case Command::agent:
            break;
        }
        co_return 0;
    }

    [[nodiscard]] const std::string &version() const { return version_; }

    std::string take_output() { return std::exchange(out_, {}); }

private:
    /// Keeps the output of a command; returns its exit code.
    int take(CommandOutput output) {
        out_ += output.text;
        std::fputs(output.error.c_str(), stderr);
        return output.code;
    }

    asio::awaitable<Rows> ask(const char *sql, const Parameters &parameters) {
        return read_rows(connection_, sql, parameters);
    }

    asio::awaitable<void> print(const char *title, const char *sql, const Parameters &parameters) {
        const Rows rows = co_await ask(sql, parameters);
        out_ += fmt::format("{}\n{}\n", title, table_of(rows));
    }

    asio::awaitable<void> print_json(const char *sql, const Parameters &parameters) {
        const Rows rows = co_await ask(sql, parameters);
        for (int row = 0; row < rows.size(); ++row)
            out_ += fmt::format("{}\n", rows.text(row, only_column));
    }

    /// 2 when doctor() finds an error, 1 a warning.
    asio::awaitable<int> severity() {
        const Rows rows = co_await ask(SQL_PROBLEMS, no_parameters);
        int worst = 0;
        for (int row = 0; row < rows.size(); ++row)
            if (const auto found = rows.text(row, ProblemColumns::severity); found == "error")
                worst = 2;
            else if (found == "warning")
                worst = std::max(worst, 1);
        co_return worst;
    }

    asio::awaitable<int> status() {
        if (config_.json) {
            co_await print_json(SQL_STATUS_JSON, no_parameters);
        } else {
            co_await print("Rings", SQL_RINGS, no_parameters);
            co_await print("Nodes", SQL_NODES, no_parameters);
            co_await print("Sagas", SQL_SAGAS, no_parameters);
            co_await print("Subscriptions", SQL_SUBSCRIPTIONS, no_parameters);
            co_await print("Checks", SQL_PROBLEMS, no_parameters);
        }
        co_return co_await severity();
    }

    asio::awaitable<int> ring() {
        for (const RingName &name : config_.rings) {
            const Parameters parameters{name.region, name.cluster};
            if (config_.json)
                co_await print_json(SQL_RING_JSON, parameters);
            else
                co_await print(fmt::format("Ring {}/{}", name.region, name.cluster).c_str(),
                               SQL_RANGES, parameters);
        }
        co_return 0;
    }

    asio::awaitable<int> locate() {
        const Parameters parameters{config_.key};
        if (config_.json)
            co_await print_json(SQL_LOCATE_JSON, parameters);
        else
            co_await print("Key", SQL_LOCATE, parameters);
        co_return 0;
    }

    asio::awaitable<int> doctor() {
        if (config_.json)
            co_await print_json(SQL_DOCTOR_JSON, no_parameters);
        else
            co_await print("Checks", SQL_PROBLEMS, no_parameters);
        co_return co_await severity();
    }

    asio::io_context &io_;
    const CommandConfig &config_;
    std::string conninfo_;
    Connection connection_;
    std::string version_;
    std::string out_;
};

} // namespace

void print_out(const std::string &text) {
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
        throw std::runtime_error(
            fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

namespace {

/// check-config of several databases tries each of them. The exit code is that of the first one
/// that is not usable.
asio::awaitable<int> check_databases(asio::io_context &io, const CommandConfig &config) {
    std::string out = config.printed;
    int code = exit_code::ok;
    for (const std::string &conninfo : config.databases) {
        const std::string label = database_label(conninfo);
        CommandRunner runner(io, config, conninfo);
        try {
            const Progress progress(io);
            co_await runner.open();
            out += fmt::format("connected: {} has stacksaga {}\n", label, runner.version());
        } catch (const StoreError &error) {
            std::fputs(fmt::format("not usable: {}: {}", label, explain(error)).c_str(), stderr);
            if (code == exit_code::ok)
                code = exit_code_of(error.kind);
        }
    }
    print_out(out);
    co_return code;
}

} // namespace

asio::awaitable<int> run_command(asio::io_context &io, const CommandConfig &config) {
    if (config.command == Command::check_config && config.databases.size() > 1)
        co_return co_await check_databases(io, config);
    // Only a terminal is cleared before each output.
    const std::string clear = ::isatty(STDOUT_FILENO) != 0 ? "\033[H\033[2J" : "";
    CommandRunner runner(io, config, config.conninfo);
    for (;;) {
        int code = 0;
        std::string failure;
        try {
            const Progress progress(io);
            co_await runner.open();
            code = co_await runner.run();
        } catch (const StoreError &error) {
            // A watch goes on until the database is back.
            if (!config.watch || error.kind != ErrorClass::reconnect)
                throw;
            failure = explain(error);
        }
        print_out((config.watch ? clear : "") + runner.take_output() + failure);
        if (!config.watch)
            co_return code;
        asio::steady_timer timer(io, watch_period);
        co_await timer.async_wait(asio::use_awaitable);
    }
}

} // namespace stacksaga::coordinator
