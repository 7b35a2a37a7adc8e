// What the daemon shows of a database: read over a connection of its own, so that a slow answer
// holds up no window.
#pragma once

#include "connection.hpp"
#include "errors.hpp"
#include "exposition.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/experimental/channel.hpp>

#include <optional>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// Lifecycle: made, asked at any time, close() at the end. Connects when it is asked, and again
/// after the connection was lost. Any number of questions at a time, on the executor's thread; the
/// database gets one after the other, and an answer is kept for a second, so that it never gets
/// more than a few a second. What cannot be answered is thrown as StoreError.
class Observer {
public:
    Observer(const asio::any_io_executor &executor, std::string conninfo,
             Connection::NoticeHandler on_notice);

    /// Returns when the database answers and has the extension.
    asio::awaitable<void> check_ready();

    /// stacksaga.status(), as JSON.
    asio::awaitable<std::string> status();

    /// stacksaga.metrics().
    asio::awaitable<std::vector<Sample>> metrics();

    /// stacksaga.metric_descriptions() as of the latest connection; none before metrics() was
    /// asked.
    [[nodiscard]] const MetricDescriptions &descriptions() const noexcept { return descriptions_; }

    /// stacksaga.saga_timeline(); nothing when there is no such saga. `saga_id` is a uuid.
    asio::awaitable<std::vector<std::string>> timeline(const std::string &saga_id);

    /// For good: what is asked and what waits ends with a StoreError.
    void close() noexcept {
        closed_ = true;
        connection_.close();
    }

private:
    template <class Value> struct Kept {
        std::optional<Value> value;
        SteadyTime until;
    };
    class Turn;

    asio::awaitable<void> connect();
    asio::awaitable<Rows> query(const char *sql, const Parameters &parameters);
    asio::awaitable<void> describe();
    template <class Value, class Ask> asio::awaitable<Value> keep(Kept<Value> &kept, Ask ask);

    std::string conninfo_;
    bool closed_ = false;
    Connection connection_;
    /// Holds one token: who has taken it may use the connection.
    asio::experimental::channel<void(asio::error_code, bool)> turn_;
    int waiting_ = 0;
    Kept<bool> ready_;
    Kept<std::string> status_;
    Kept<std::vector<Sample>> metrics_;
    MetricDescriptions descriptions_;
    bool described_ = false; ///< over this connection
};

} // namespace stacksaga::coordinator
