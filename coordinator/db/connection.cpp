#include "db/connection.hpp"

#include "db/conninfo.hpp"
#include "db/store_error.hpp"

#include <asio/error.hpp>
#include <asio/steady_timer.hpp>
#include <asio/system_error.hpp>
#include <asio/use_awaitable.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <new>

namespace stacksaga::coordinator {

/// The hosts that libpq tries one after the other, as it writes them: comma-separated. A list of
/// one entry holds for all of them, an empty one says nothing.
struct Connection::Hosts {
    std::string names;     ///< host
    std::string addresses; ///< hostaddr
    std::string ports;     ///< port
};

namespace {

using Hosts = Connection::Hosts;

constexpr Duration default_connect_timeout = std::chrono::seconds(10);

constexpr const char *SQL_PROCESS = "SELECT pg_catalog.pg_backend_pid()";
/// Operators, types and functions are PostgreSQL's, whatever the role or the database sets.
constexpr const char *SQL_PIN_PATH =
    "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)";

/// Of this process; set before the first connection.
bool poolers_keep_sessions = false;

/// Settings that libpq leaves open by default, but a daemon must not.
struct Default {
    const char *keyword;
    const char *value;
    const char *variable = nullptr; // of the environment, where there is one
};
constexpr std::array defaults{
    Default{"fallback_application_name", "stacksaga-coordinator"},
    Default{"client_encoding", "UTF8"}, // whatever the environment says: the log is UTF-8
    // Of several hosts, and after a failover: the primary.
    Default{"target_session_attrs", "read-write", "PGTARGETSESSIONATTRS"},
    Default{"tcp_user_timeout", "5000"}, // ms without acknowledgement
    Default{"keepalives", "1"},
    Default{"keepalives_idle", "10"}, // s
    Default{"keepalives_interval", "5"},
    Default{"keepalives_count", "3"},
};

/// Starts a connection, to `hosts` if there are any. Words of the conninfo win over the defaults,
/// which stand before it; a variable of the environment would lose, so a default that it sets is
/// left out.
PGconn *start(const std::string &conninfo, const Hosts &hosts) {
    std::vector<const char *> keywords;
    std::vector<const char *> values;
    for (const Default &setting : defaults) {
        if (setting.variable && std::getenv(setting.variable))
            continue;
        keywords.push_back(setting.keyword);
        values.push_back(setting.value);
    }
    if (!conninfo.empty()) {
        keywords.push_back("dbname");
        values.push_back(conninfo.c_str());
    }
    const auto add = [&](const char *keyword, const std::string &value) {
        if (value.empty())
            return;
        keywords.push_back(keyword);
        values.push_back(value.c_str());
    };
    add("host", hosts.names);
    add("hostaddr", hosts.addresses);
    add("port", hosts.ports);
    keywords.push_back(nullptr);
    values.push_back(nullptr);
    PGconn *connection = PQconnectStartParams(keywords.data(), values.data(), 1);
    if (!connection)
        throw std::bad_alloc();
    return connection;
}

/// Removes the final line break of libpq's messages and the lines about the server's source code in
/// verbose ones.
std::string tidy(std::string_view message) {
    std::string result;
    while (!message.empty()) {
        const std::size_t end = std::min(message.find('\n'), message.size() - 1) + 1;
        if (!message.starts_with("LOCATION:"))
            result += message.substr(0, end);
        message.remove_prefix(end);
    }
    while (result.ends_with('\n'))
        result.pop_back();
    return result;
}

std::int64_t to_int64(std::string_view text, std::int64_t otherwise) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && end == text.data() + text.size() ? number : otherwise;
}

/// The time for each host. As in libpq, a connect_timeout of 0 and less means the default here: a
/// daemon does not wait for ever.
Duration connect_deadline(const ConninfoOptions &options) {
    const auto seconds = to_int64(option_value(options, "connect_timeout").value_or("0"), 0);
    return seconds > 0 && seconds < 3600
               ? Duration(std::chrono::seconds(std::max<std::int64_t>(seconds, 2)))
               : default_connect_timeout;
}

std::vector<std::string_view> entries_of(std::string_view list) {
    std::vector<std::string_view> entries;
    for (;;) {
        const auto comma = list.find(',');
        entries.push_back(list.substr(0, comma));
        if (comma == std::string_view::npos)
            return entries;
        list.remove_prefix(comma + 1);
    }
}

/// The hosts behind the one that the connection tries now; no value when that is the last.
std::optional<Hosts> hosts_after_present(PGconn *connection) {
    const ConninfoOptions options{PQconninfo(connection)};
    const Hosts all{option_value(options, "host").value_or(""),
                    option_value(options, "hostaddr").value_or(""),
                    option_value(options, "port").value_or("")};
    const auto names = entries_of(all.names), addresses = entries_of(all.addresses),
               ports = entries_of(all.ports);
    const auto entry = [](const auto &list, std::size_t i) {
        return list.size() == 1 ? list[0] : i < list.size() ? list[i] : std::string_view();
    };
    const std::string_view present{PQhost(connection)}, port{PQport(connection)};
    const std::size_t count = std::max(names.size(), addresses.size());
    std::size_t i = 0;
    while (i + 1 < count && ((entry(names, i) != present && entry(addresses, i) != present) ||
                             (!entry(ports, i).empty() && entry(ports, i) != port)))
        ++i;
    if (i + 1 >= count)
        return std::nullopt;
    const auto rest = [i](const std::string &list, const auto &entries) {
        return entries.size() == 1
                   ? list
                   : list.substr(static_cast<std::size_t>(entries[i + 1].data() - list.data()));
    };
    return Hosts{rest(all.names, names), rest(all.addresses, addresses), rest(all.ports, ports)};
}

/// For people: the host that the connection tries now.
std::string present_host(PGconn *connection) {
    return fmt::format("{}, port {}", PQhost(connection), PQport(connection));
}

StoreError connect_error(PGconn *connection) {
    const std::string message = tidy(PQerrorMessage(connection));
    const std::string sqlstate = sqlstate_in(message);
    if (sqlstate.empty() &&
        (PQconnectionNeedsPassword(connection) || PQconnectionUsedPassword(connection)))
        return {ErrorClass::permission, message};
    return {classify(sqlstate), message, sqlstate, {}, std::string(advice_on_connecting(sqlstate))};
}

StoreError result_error(const PGresult *result) {
    const auto field = [&](int code) -> std::string {
        const char *text = PQresultErrorField(result, code);
        return text ? text : "";
    };
    const std::string sqlstate = field(PG_DIAG_SQLSTATE);
    std::string message = field(PG_DIAG_MESSAGE_PRIMARY);
    if (message.empty())
        message = tidy(PQresultErrorMessage(result));
    const ErrorClass kind = classify(sqlstate);
    // The server's own hint is about the spelling of a name.
    std::string hint =
        kind == ErrorClass::missing_extension
            ? "Run CREATE EXTENSION stacksaga, or ALTER EXTENSION stacksaga UPDATE if it is older."
            : field(PG_DIAG_MESSAGE_HINT);
    return {kind, message, sqlstate, field(PG_DIAG_MESSAGE_DETAIL), std::move(hint)};
}

void receive_notice(void *handler, const PGresult *result) {
    const auto &on_notice = *static_cast<const Connection::NoticeHandler *>(handler);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (on_notice && message)
        on_notice(message);
}

} // namespace

bool Rows::is_null(int row, int column) const noexcept {
    return PQgetisnull(result_.get(), row, column) != 0;
}

std::string_view Rows::text(int row, int column) const noexcept {
    return {PQgetvalue(result_.get(), row, column),
            static_cast<std::size_t>(PQgetlength(result_.get(), row, column))};
}

template <class Number> Number Rows::number(int row, int column) const {
    const std::string_view value = text(row, column);
    Number number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size())
        throw StoreError(ErrorClass::fatal,
                         fmt::format("the server returned \"{}\" instead of a number", value));
    return number;
}

std::int64_t Rows::int64(int row, int column) const {
    return number<std::int64_t>(row, column);
}

double Rows::float8(int row, int column) const {
    return number<double>(row, column);
}

std::string array_literal(const std::vector<std::string> &elements) {
    std::string literal = "{";
    for (const std::string &element : elements) {
        literal += literal.size() > 1 ? ",\"" : "\"";
        for (const char c : element) {
            if (c == '"' || c == '\\')
                literal += '\\';
            literal += c;
        }
        literal += '"';
    }
    return literal + '}';
}

std::string array_literal(const std::vector<std::int64_t> &elements) {
    return fmt::format("{{{}}}", fmt::join(elements, ","));
}

std::string sqlstate_in(std::string_view message) {
    // "SEVERITY:  SQLSTATE: text", where the severity is in the server's language.
    constexpr std::string_view before = ":  ";
    const auto is_code = [](std::string_view text) {
        return std::ranges::all_of(
            text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z'); });
    };
    for (std::size_t at = message.rfind(before); at != std::string_view::npos && at > 0;
         at = message.rfind(before, at - 1)) {
        const std::string_view code = message.substr(at + before.size(), 6);
        if (code.size() == 6 && code[5] == ':' && is_code(code.substr(0, 5)))
            return std::string(code.substr(0, 5));
    }
    return {};
}

/// Cancels the waits of a connection when the time of an operation is up. Lives as long as the
/// operation; its timer's handler may run later, and finds it inactive then.
class Connection::Deadline {
public:
    Deadline(asio::posix::stream_descriptor &socket, Duration allowed)
        : state_(std::make_shared<Timer>(socket)), allowed_(allowed) {
        state_->timer.expires_after(allowed);
        state_->timer.async_wait([state = state_](const asio::error_code &error) {
            if (error || !state->active)
                return;
            state->expired = true;
            asio::error_code ignored; // nothing to cancel when the wait is over already
            state->socket.cancel(ignored);
        });
    }
    Deadline(const Deadline &) = delete;
    Deadline &operator=(const Deadline &) = delete;
    ~Deadline() {
        state_->active = false;
        state_->timer.cancel();
    }

    [[nodiscard]] bool expired() const noexcept { return state_->expired; }

    [[noreturn]] void fail() const {
        const auto seconds = std::chrono::duration<double>(allowed_).count();
        throw StoreError(ErrorClass::reconnect, fmt::format("no answer within {:.3g} s", seconds));
    }

private:
    struct Timer {
        explicit Timer(asio::posix::stream_descriptor &descriptor)
            : socket(descriptor), timer(descriptor.get_executor()) {}
        asio::posix::stream_descriptor &socket;
        asio::steady_timer timer;
        bool active = true;
        bool expired = false;
    };
    std::shared_ptr<Timer> state_;
    Duration allowed_;
};

Connection::Connection(const asio::any_io_executor &executor, NoticeHandler on_notice)
    : socket_(executor), on_notice_(std::move(on_notice)) {}

void Connection::close() noexcept {
    detach();
    PQfinish(connection_);
    connection_ = nullptr;
}

void Connection::attach() {
    socket_.assign(PQsocket(connection_));
}

void Connection::detach() noexcept {
    if (socket_.is_open())
        socket_.release();
}

asio::awaitable<void> Connection::wait(asio::posix::stream_descriptor::wait_type what,
                                       Deadline &deadline) {
    // The timer may have fired while the coroutine was running, with no wait to cancel.
    if (deadline.expired())
        deadline.fail();
    try {
        co_await socket_.async_wait(what, asio::use_awaitable);
    } catch (const asio::system_error &error) {
        if (deadline.expired())
            deadline.fail();
        if (error.code() == asio::error::operation_aborted)
            throw;
        throw StoreError(ErrorClass::reconnect, error.what());
    }
}

asio::awaitable<void> Connection::poll_until_connected() {
    const Duration allowed = connect_deadline(ConninfoOptions{PQconninfo(connection_)});
    std::optional<Deadline> deadline;
    std::string host;
    // libpq: behave at first as if PQconnectPoll had said WRITING.
    PostgresPollingStatusType status = PGRES_POLLING_WRITING;
    while (status != PGRES_POLLING_OK) {
        if (std::string now = present_host(connection_); !deadline || now != host) {
            host = std::move(now);
            deadline.emplace(socket_, allowed);
        }
        // Detached before every step: libpq may close the socket and get the same number for the
        // next.
        attach();
        co_await wait(status == PGRES_POLLING_READING ? socket_.wait_read : socket_.wait_write,
                      *deadline);
        detach();
        status = PQconnectPoll(connection_);
        if (status == PGRES_POLLING_FAILED)
            throw connect_error(connection_);
    }
    attach();
}

/// Starts a connection and polls it; false when a host did not answer in time and `hosts` are those
/// behind it. libpq itself goes on to the next host only after an error, and a frozen server makes
/// none.
asio::awaitable<bool> Connection::try_hosts(const std::string &conninfo, Hosts &hosts,
                                            std::string &unresponsive) {
    connection_ = start(conninfo, hosts);
    try {
        if (PQstatus(connection_) == CONNECTION_BAD)
            throw connect_error(connection_);
        PQsetErrorVerbosity(connection_, PQERRORS_VERBOSE);
        PQsetNoticeReceiver(connection_, receive_notice, &on_notice_);
        co_await poll_until_connected();
        co_return true;
    } catch (const StoreError &error) {
        const bool is_unresponsive = PQstatus(connection_) != CONNECTION_BAD;
        const auto rest = is_unresponsive ? hosts_after_present(connection_) : std::nullopt;
        if (!rest) {
            StoreError with_others = error;
            with_others.detail += unresponsive;
            throw with_others;
        }
        unresponsive += fmt::format("{}: {}. ", present_host(connection_), error.what());
        hosts = *rest;
    }
    close();
    co_return false;
}

asio::awaitable<void> Connection::open(const std::string &conninfo) {
    close();
    try {
        Hosts hosts;
        std::string unresponsive;
        while (!co_await try_hosts(conninfo, hosts, unresponsive)) {
        }
        PQsetErrorVerbosity(connection_, PQERRORS_DEFAULT);
        if (PQsetnonblocking(connection_, 1) != 0)
            throw connect_error(connection_);
        if (!poolers_keep_sessions)
            co_await require_own_session();
        co_await query(SQL_PIN_PATH, no_parameters, default_connect_timeout);
    } catch (...) {
        close();
        throw;
    }
}

void Connection::trust_poolers(bool trusted) noexcept {
    poolers_keep_sessions = trusted;
}

/// A server reports its process id when a client connects; a pooler reports a number of its own,
/// because it has no server for this client yet.
asio::awaitable<void> Connection::require_own_session() {
    const Rows rows = co_await query(SQL_PROCESS, no_parameters, default_connect_timeout);
    const std::int64_t process = rows.int64(0, only_column);
    const int reported = PQbackendPID(connection_);
    if (process != reported)
        throw StoreError(
            ErrorClass::shared_session, "a pooler or proxy is between this daemon and the server",
            {},
            fmt::format("The server's process is {}, but the connection reports {}.", process,
                        reported),
            "Connect to the server itself: the daemon sets session parameters, which a pooler in "
            "transaction mode passes on to other clients. If the pooler gives each client its own "
            "session, use --session-pooler.");
}

void Connection::fail_broken() {
    throw StoreError(ErrorClass::reconnect, tidy(PQerrorMessage(connection_)));
}

asio::awaitable<void> Connection::flush(Deadline &deadline) {
    for (;;) {
        const int left = PQflush(connection_);
        if (left < 0)
            fail_broken();
        if (left == 0)
            co_return;
        co_await wait(socket_.wait_write, deadline);
    }
}

/// The next result of the statement in flight; empty when there are no more.
asio::awaitable<Rows::Result> Connection::next_result(Deadline &deadline) {
    while (PQisBusy(connection_)) {
        co_await wait(socket_.wait_read, deadline);
        if (!PQconsumeInput(connection_))
            fail_broken();
    }
    co_return Rows::Result(PQgetResult(connection_));
}

asio::awaitable<Rows> Connection::answer(Deadline &deadline) {
    // The first result counts: when a server shuts down its reason comes first, the broken socket
    // next.
    Rows::Result first = co_await next_result(deadline);
    for (bool more = first != nullptr; more;)
        more = co_await next_result(deadline) != nullptr;
    if (!first)
        fail_broken();
    const ExecStatusType status = PQresultStatus(first.get());
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        throw result_error(first.get());
    co_return Rows(std::move(first));
}

asio::awaitable<Rows> Connection::query(const char *sql, const Parameters &parameters,
                                        Duration allowed) {
    if (!is_open())
        throw StoreError(ErrorClass::reconnect, "not connected");
    std::vector<const char *> values;
    for (const auto &parameter : parameters)
        values.push_back(parameter ? parameter->c_str() : nullptr);

    try {
        Deadline deadline(socket_, allowed);
        if (!PQsendQueryParams(connection_, sql, static_cast<int>(values.size()), nullptr,
                               values.data(), nullptr, nullptr, 0))
            fail_broken();
        co_await flush(deadline);
        Rows rows = co_await answer(deadline);
        co_return rows;
    } catch (const StoreError &error) {
        // Without an answer of the server to this statement, nothing else can be asked.
        if (error.sqlstate.empty() || PQstatus(connection_) != CONNECTION_OK)
            close();
        throw;
    } catch (...) {
        close();
        throw;
    }
}

} // namespace stacksaga::coordinator
