// Reads the status, metrics and timelines of a database over a connection of its own, so that a
// slow answer delays no window.
#pragma once

#include "web/exposition.hpp"
#include "web/shared_connection.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <optional>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// Lifecycle: constructed, queried at any time, close() at the end. A query connects if there is no
/// connection. Any number of queries may run concurrently on the executor's thread; the database
/// gets one at a time, and an answer is kept for a second, so that the database never gets more
/// than a few queries a second. A failure is thrown as StoreError.
class StatusReader {
public:
    StatusReader(const asio::any_io_executor &executor, std::string conninfo,
                 Connection::NoticeHandler on_notice);

    /// Returns when the database answers and has the extension.
    asio::awaitable<void> check_ready();

    /// stacksaga.status(), as JSON.
    asio::awaitable<std::string> status();

    /// stacksaga.metrics().
    asio::awaitable<std::vector<Sample>> metrics();

    /// stacksaga.metric_descriptions() as of the latest connection; empty before the first call of
    /// metrics().
    [[nodiscard]] const MetricDescriptions &descriptions() const noexcept { return descriptions_; }

    /// stacksaga.saga_timeline(); nothing when there is no such saga. `saga_id` is a uuid.
    asio::awaitable<std::vector<std::string>> timeline(const std::string &saga_id);

    /// Closes the reader for good: running and waiting queries end with a StoreError.
    void close() noexcept { connection_.close(); }

private:
    template <class Value> struct Kept {
        std::optional<Value> value;
        SteadyTime until;
    };

    asio::awaitable<void> describe();
    template <class Value, class Ask> asio::awaitable<Value> keep(Kept<Value> &kept, Ask ask);

    SharedConnection connection_;
    Kept<bool> ready_;
    Kept<std::string> status_;
    Kept<std::vector<Sample>> metrics_;
    MetricDescriptions descriptions_;
    int described_ = 0; ///< which connection has read the descriptions
};

} // namespace stacksaga::coordinator
