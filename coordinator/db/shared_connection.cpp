#include "db/shared_connection.hpp"

#include <asio/use_awaitable.hpp>

#include <utility>

namespace stacksaga::coordinator {
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
    const Parameters none;
    if (closed_)
        throw StoreError(ErrorClass::refused, "the daemon is stopping");
    if (connection_.is_open())
        co_return;
    ++connections_;
    co_await connection_.open(conninfo_);
    co_await connection_.query(settings_.sql, none, settings_.deadline);
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
