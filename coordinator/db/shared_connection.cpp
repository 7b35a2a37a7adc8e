#include "db/shared_connection.hpp"

#include "db/store_error.hpp"

#include <asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <utility>

namespace stacksaga::coordinator {
namespace {

constexpr const char *SQL_EXTENSION =
    "SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'stacksaga'";

std::optional<std::pair<int, int>> parse_version(std::string_view text) noexcept {
    const char *end = text.data() + text.size();
    std::pair<int, int> version;
    const auto major = std::from_chars(text.data(), end, version.first);
    if (major.ec != std::errc{} || major.ptr == end || *major.ptr != '.')
        return std::nullopt;
    const auto minor = std::from_chars(major.ptr + 1, end, version.second);
    return minor.ec == std::errc{} ? std::optional(version) : std::nullopt;
}

std::string literal(std::string_view text) {
    std::string quoted = "'";
    for (const char c : text)
        quoted.append(c == '\'' ? 2 : 1, c);
    return quoted + "'";
}

} // namespace

bool version_fits(std::string_view installed, std::string_view daemon) noexcept {
    const auto there = parse_version(installed);
    const auto here = parse_version(daemon);
    return there && here && there->first == here->first && there->second >= here->second;
}

asio::awaitable<std::string> require_extension(Connection &connection, Duration deadline) {
    const Rows rows = co_await connection.query(SQL_EXTENSION, no_parameters, deadline);
    const char *database = PQdb(connection.raw());
    if (rows.size() == 0)
        throw StoreError(
            ErrorClass::missing_extension,
            fmt::format("extension stacksaga is not installed in database \"{}\"", database), {},
            {}, "Run CREATE EXTENSION stacksaga there.");
    std::string version(rows.text(0, only_column));
    if (!version_fits(version, STACKSAGA_VERSION))
        throw StoreError(
            ErrorClass::missing_extension,
            fmt::format("extension stacksaga of database \"{}\" has version {}, but this daemon "
                        "has version {}",
                        database, version, STACKSAGA_VERSION),
            {},
            "A daemon works with its own version of the extension and later ones of the same "
            "major version.",
            fmt::format("Run ALTER EXTENSION stacksaga UPDATE TO '{0}' there, or start a daemon of "
                        "version {1}.",
                        STACKSAGA_VERSION, version));
    co_return version;
}

asio::awaitable<Rows> query_as(RoleKinds kinds, Connection &connection, const char *sql,
                               const Parameters &parameters, Duration deadline) {
    try {
        Rows rows = co_await connection.query(sql, parameters, deadline);
        co_return rows;
    } catch (StoreError &error) {
        if (error.sqlstate == "42501" && error.hint.empty() && connection.is_open())
            error.hint = grant_advice(connection, kinds);
        throw;
    }
}

std::string grant_advice(const Connection &connection, RoleKinds kinds) {
    const std::string role = literal(PQuser(connection.raw()));
    std::string calls;
    for (const std::string_view kind : kinds)
        calls +=
            fmt::format("{}stacksaga.grant_usage({}, '{}')", calls.empty() ? "" : ", ", role, kind);
    return fmt::format("Run as the extension's owner: SELECT {};", calls);
}

namespace {

/// A connection that fails within this time was broken before.
constexpr Duration broken_within = std::chrono::seconds(1);

} // namespace

SharedConnection::SharedConnection(const asio::any_io_executor &executor, std::string conninfo,
                                   Connection::NoticeHandler on_notice, SessionSettings settings)
    : conninfo_(std::move(conninfo)), settings_(settings),
      connection_(executor, std::move(on_notice)), turn_(executor, 1) {
    turn_.try_send(asio::error_code(), true);
}

asio::awaitable<std::unique_ptr<SharedConnection::Turn>> SharedConnection::take_turn() {
    if (waiting_ >= settings_.waiting_max)
        throw StoreError(ErrorClass::refused, "too many queries wait for the database");
    ++waiting_;
    try {
        co_await turn_.async_receive(asio::use_awaitable);
    } catch (...) {
        --waiting_;
        throw;
    }
    --waiting_;
    co_return std::make_unique<Turn>(*this);
}

asio::awaitable<void> SharedConnection::connect() {
    if (closed_)
        throw StoreError(ErrorClass::refused, "the daemon is stopping");
    if (connection_.is_open())
        co_return;
    ++connections_;
    co_await connection_.open(conninfo_);
    co_await connection_.query(settings_.sql, no_parameters, settings_.deadline);
}

asio::awaitable<Rows> SharedConnection::query(const char *sql, const Parameters &parameters) {
    const bool is_reused = connection_.is_open();
    const SteadyTime asked = std::chrono::steady_clock::now();
    co_await connect();
    try {
        Rows rows =
            co_await query_as(settings_.kinds, connection_, sql, parameters, settings_.deadline);
        co_return rows;
    } catch (const StoreError &error) {
        // The server may have restarted since the last query: a reused connection that fails at
        // once says nothing about the server now.
        if (!is_reused || error.kind != ErrorClass::reconnect || connection_.is_open() ||
            std::chrono::steady_clock::now() - asked >= broken_within)
            throw;
    }
    co_await connect();
    Rows rows =
        co_await query_as(settings_.kinds, connection_, sql, parameters, settings_.deadline);
    co_return rows;
}

} // namespace stacksaga::coordinator
