// Reads the status, metrics and timelines of a database, and the views of the page, over
// connections of their own: a slow answer delays no window, no probe and no scrape.
#pragma once

#include "db/shared_connection.hpp"
#include "web/metrics.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// Lifecycle: constructed, queried at any time, close() at the end. A query connects if there is no
/// connection. Any number of queries may run concurrently on the executor's thread. Probes have a
/// connection, status and metrics another, and timelines a third; the database gets one query at a
/// time on each. An answer that is the same for every viewer, or the failure to get one, is kept
/// for a second, and all requests of that time share it. Timelines, which any viewer may request,
/// have a bound: more than `timelines_max` at a time are refused. A failure is thrown as
/// StoreError.
class StatusReader {
public:
    static constexpr int timelines_max = 16;

    StatusReader(const asio::any_io_executor &executor, const std::string &conninfo,
                 const Connection::NoticeHandler &on_notice);

    /// Returns when the database answers and has the extension.
    asio::awaitable<void> check_ready();

    /// stacksaga.status(), as JSON.
    asio::awaitable<std::string> status();

    /// One line for each ring: nodes by state, epoch, and the owned share.
    asio::awaitable<std::string> rings();

    /// stacksaga.metrics().
    asio::awaitable<std::vector<Sample>> metrics();

    /// stacksaga.metric_descriptions() as of the latest connection; empty before the first call of
    /// metrics().
    [[nodiscard]] const MetricDescriptions &descriptions() const noexcept { return descriptions_; }

    /// stacksaga.saga_timeline(); nothing when there is no such saga. `saga_id` is a uuid.
    asio::awaitable<std::vector<std::string>> timeline(const std::string &saga_id);

    /// Closes the reader permanently: running and waiting queries end with a StoreError.
    void close() noexcept {
        probe_connection_.close();
        connection_.close();
        timeline_connection_.close();
    }

private:
    template <class Value> struct Kept {
        std::optional<Value> value;
        std::optional<StoreError> failure; ///< in place of a value
        SteadyTime at{};
    };

    asio::awaitable<void> describe();
    template <class Value, class Ask>
    static asio::awaitable<Value> keep(SharedConnection &connection, Kept<Value> &kept, Ask ask);

    SharedConnection probe_connection_;
    SharedConnection connection_;
    SharedConnection timeline_connection_;
    Kept<bool> ready_;
    Kept<std::string> status_;
    Kept<std::string> rings_;
    Kept<std::vector<Sample>> metrics_;
    MetricDescriptions descriptions_;
    int described_ = 0; ///< which connection has read the descriptions
};

/// Lifecycle: constructed, read() at any time, close() at the end. The database gets one query at a
/// time, each with a deadline; an answer is kept for a second, or ten times as long as it took, so
/// that many viewers of one view cost as much as one. Failures are thrown as StoreError.
class ViewReader {
public:
    /// More than `waiting_max` queries at a time are refused.
    ViewReader(const asio::any_io_executor &executor, std::string conninfo,
               Connection::NoticeHandler on_notice, int waiting_max);

    /// The JSON that a query of one row and column returns; nothing for NULL or no row.
    asio::awaitable<std::optional<std::string>> read(const char *sql, Parameters parameters);

    /// Forgets the kept answers, after an action.
    void forget() noexcept { kept_.clear(); }

    void close() noexcept { connection_.close(); }

private:
    struct KeptBody {
        std::optional<std::string> body;
        SteadyTime until;
    };

    [[nodiscard]] const KeptBody *fresh(const std::string &question);
    void keep(const std::string &question, const std::optional<std::string> &body,
              Duration duration);

    SharedConnection connection_;
    std::map<std::string, KeptBody> kept_;
};

} // namespace stacksaga::coordinator
