// Connections to a database that has the extension: what the daemon requires of it, the extension
// in a compatible version and privileges for its role; and one connection that coroutines use in
// turn, which is opened again when it broke.
#pragma once

#include "db/connection.hpp"
#include "db/store_error.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/experimental/channel.hpp>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace stacksaga::coordinator {

/// Whether a daemon of version `daemon` can work with an extension of version `installed`: the same
/// major version, and a minor one that is not older. Both are MAJOR.MINOR; anything else does not
/// fit.
[[nodiscard]] bool version_fits(std::string_view installed, std::string_view daemon) noexcept;

/// The version of the extension in the database of this connection. Throws
/// StoreError(missing_extension), with the SQL that fixes it, when there is none or it does not
/// fit.
asio::awaitable<std::string> require_extension(Connection &connection, Duration deadline);

/// Kinds of roles, as grant_usage() has them.
using RoleKinds = std::span<const std::string_view>;
inline constexpr std::array<std::string_view, 1> monitor_kinds{"monitor"};

/// Runs a query as a role that should be of these kinds. If the role lacks a privilege and the
/// server has no hint, the error's hint is the SQL that grants it.
asio::awaitable<Rows> query_as(RoleKinds kinds, Connection &connection, const char *sql,
                               const Parameters &parameters, Duration deadline);

/// The SQL that grants the privileges that this connection's role lacks.
[[nodiscard]] std::string grant_advice(const Connection &connection, RoleKinds kinds);

/// The answer to viewers while a database is down; only the log and /readyz give the reason.
inline constexpr const char *no_answer = "the database does not answer";

/// How a SharedConnection behaves.
struct SessionSettings {
    const char *sql;      ///< a query that sets up each new session
    RoleKinds kinds;      ///< the kinds that the role needs, for the hint of an error
    Duration deadline;    ///< of each statement
    int waiting_max = 64; ///< of coroutines that wait for their turn; others are refused
};

/// Lifecycle: constructed; take_turn(), then query() as long as the turn lives; close() at the end.
/// Thread: that of the executor. Failures are thrown as StoreError.
class SharedConnection {
public:
    /// The right to use the connection; its end passes the right on.
    class Turn {
    public:
        explicit Turn(SharedConnection &of) : of_(of) {}
        Turn(const Turn &) = delete;
        Turn &operator=(const Turn &) = delete;
        ~Turn() { of_.turn_.try_send(asio::error_code(), true); }

    private:
        SharedConnection &of_;
    };

    SharedConnection(const asio::any_io_executor &executor, std::string conninfo,
                     Connection::NoticeHandler on_notice, SessionSettings settings);

    /// Waits for the turn. Throws when too many coroutines wait already.
    asio::awaitable<std::unique_ptr<Turn>> take_turn();

    /// Runs a statement in the own turn, on a new connection if there is none. A connection that
    /// broke since its last use, as by a restart of the server, is replaced once, so the first
    /// statement of a turn must be safe to run twice.
    asio::awaitable<Rows> query(const char *sql, const Parameters &parameters);

    /// Opens the connection if there is none.
    asio::awaitable<void> connect();

    /// Number of connections so far; a caller that caches something of a connection compares it.
    [[nodiscard]] int connections() const noexcept { return connections_; }
    [[nodiscard]] Connection &connection() noexcept { return connection_; }
    [[nodiscard]] Duration deadline() const noexcept { return settings_.deadline; }

    /// Closes it permanently: running and waiting statements end with a StoreError.
    void close() noexcept {
        closed_ = true;
        connection_.close();
    }

private:
    std::string conninfo_;
    SessionSettings settings_;
    bool closed_ = false;
    Connection connection_;
    /// Holds one token: the coroutine that has taken it may use the connection.
    asio::experimental::channel<void(asio::error_code, bool)> turn_;
    int waiting_ = 0;
    int connections_ = 0;
};

} // namespace stacksaga::coordinator
