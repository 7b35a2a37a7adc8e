// Runs the queries of views over a connection of its own, so that a slow one delays no window, no
// probe and no scrape.
#pragma once

#include "db/shared_connection.hpp"

#include <map>
#include <optional>
#include <string>

namespace stacksaga::coordinator {

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

    /// Keeps no answer any longer: something was done.
    void forget() noexcept { kept_.clear(); }

    void close() noexcept { connection_.close(); }

private:
    struct Kept {
        std::optional<std::string> body;
        SteadyTime until;
    };

    [[nodiscard]] const Kept *fresh(const std::string &question);
    void keep(const std::string &question, const std::optional<std::string> &body,
              Duration duration);

    SharedConnection connection_;
    std::map<std::string, Kept> kept_;
};

} // namespace stacksaga::coordinator
