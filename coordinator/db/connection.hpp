// One asynchronous libpq connection on an Asio executor, for C++20 coroutines.
#pragma once

#include "base/time.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include <libpq-fe.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stacksaga::coordinator {

/// The column of a query that has one. Those of a query with more have names, in an enum beside it.
inline constexpr int only_column = 0;

/// Rows of an answer. Values are in text form; a malformed one throws StoreError(fatal).
class Rows {
public:
    struct Clear {
        void operator()(PGresult *result) const noexcept { PQclear(result); }
    };
    using Result = std::unique_ptr<PGresult, Clear>;

    explicit Rows(Result result) : result_(std::move(result)) {}

    [[nodiscard]] int size() const noexcept { return PQntuples(result_.get()); }
    [[nodiscard]] int columns() const noexcept { return PQnfields(result_.get()); }
    [[nodiscard]] std::string_view name(int column) const noexcept {
        return PQfname(result_.get(), column);
    }
    [[nodiscard]] bool is_null(int row, int column) const noexcept;
    [[nodiscard]] std::string_view text(int row, int column) const noexcept;
    [[nodiscard]] std::int64_t int64(int row, int column) const;
    [[nodiscard]] double float8(int row, int column) const;
    [[nodiscard]] bool boolean(int row, int column) const noexcept {
        return text(row, column) == "t";
    }

private:
    template <class Number> [[nodiscard]] Number number(int row, int column) const;

    Result result_;
};

/// A parameter in text form; nothing is NULL.
using Parameters = std::vector<std::optional<std::string>>;
inline const Parameters no_parameters;

/// `{"a","b"}`: a text[] in text form, for a parameter.
[[nodiscard]] std::string array_literal(const std::vector<std::string> &elements);

/// `{1,2}`: a bigint[] in text form.
[[nodiscard]] std::string array_literal(const std::vector<std::int64_t> &elements);

/// The SQLSTATE in a libpq message of verbosity VERBOSE ("FATAL:  28P01: ..."), the last one where
/// several hosts were tried; empty when there is none. libpq has no other way to report it for a
/// failed connection.
[[nodiscard]] std::string sqlstate_in(std::string_view message);

/// Lifecycle: open(), then query() one at a time, close() between two calls; open() again after
/// that. An error without SQLSTATE or a missed deadline closes the connection. Thread: that of the
/// executor. Failures are thrown as StoreError, a stop of the daemon as
/// asio::system_error(operation_aborted).
///
/// Only name resolution blocks: libpq has no asynchronous one.
class Connection {
public:
    struct Hosts;
    using NoticeHandler = std::function<void(std::string_view)>;

    Connection(const asio::any_io_executor &executor, NoticeHandler on_notice);
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;
    ~Connection() { close(); }

    /// Connects by libpq's own settings: `conninfo` (a database name, key=value words or a URI; may
    /// be empty), then PG* environment, service file and password file. Defaults for the rest:
    /// libpq decides about encryption, the server must accept writes, the daemon detects a dead
    /// peer within seconds. The deadline is connect_timeout (default 10 s) for each host; a host
    /// that misses it delays the next one and does not prevent it. The session's search_path is
    /// then pg_catalog alone.
    asio::awaitable<void> open(const std::string &conninfo);

    /// Runs one statement within the deadline.
    asio::awaitable<Rows> query(const char *sql, const Parameters &parameters, Duration deadline);

    void close() noexcept;

    /// Sets whether this process accepts connections through a pooler. Otherwise open() throws
    /// StoreError(shared_session) when it finds one, before it sets anything in the session.
    static void trust_poolers(bool trusted) noexcept;

    [[nodiscard]] bool is_open() const noexcept { return connection_ != nullptr; }
    [[nodiscard]] const PGconn *raw() const noexcept { return connection_; }

private:
    class Deadline;

    asio::awaitable<bool> try_hosts(const std::string &conninfo, Hosts &hosts,
                                    std::string &unresponsive);
    asio::awaitable<void> poll_until_connected();
    asio::awaitable<void> require_own_session();
    asio::awaitable<void> flush(Deadline &deadline);
    asio::awaitable<Rows::Result> next_result(Deadline &deadline);
    asio::awaitable<Rows> answer(Deadline &deadline);
    asio::awaitable<void> wait(asio::posix::stream_descriptor::wait_type what, Deadline &deadline);
    void attach();
    void detach() noexcept;
    [[noreturn]] void fail_broken();

    asio::posix::stream_descriptor socket_; ///< libpq owns the file descriptor; never closed here
    PGconn *connection_ = nullptr;
    NoticeHandler on_notice_;
};

} // namespace stacksaga::coordinator
