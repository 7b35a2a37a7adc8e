// The page's data and actions over HTTP: /api/... answers in JSON.
#pragma once

#include "db/actions.hpp"
#include "http/message.hpp"
#include "web/access.hpp"
#include "web/metrics.hpp"
#include "web/readers.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/steady_timer.hpp>

#include <deque>
#include <string>

namespace stacksaga::coordinator {

/// Lifecycle: constructed, add_database() for each, start() once, answer() any number of requests,
/// close() at the end. Thread: that of the executor.
class Api {
public:
    Api(const asio::any_io_executor &executor, Access &access, Log &log);

    /// Adds a database; `name` is from database_names(), `status` outlives this object.
    void add_database(std::string name, const std::string &conninfo, StatusReader &status);

    /// Reads the values of the charts, every half minute until close().
    void start();

    /// | path | method | answers |
    /// |---|---|---|
    /// | /api/session | GET | the viewer, and whether he may act |
    /// | /api/login, /api/logout | POST | begins, ends a session |
    /// | /api/history | GET | the charts of the last hour |
    /// | those of views() | GET | the view |
    /// | /api/act/NAME | POST | runs an action and rolls it back; with ?dry_run=no commits it |
    ///
    /// ?database=NAME chooses one of several databases; without it the first one is meant.
    asio::awaitable<HttpResponse> answer(HttpRequest request);

    void close() noexcept;

private:
    struct Database {
        Database(const asio::any_io_executor &executor, std::string name_of,
                 const std::string &conninfo, StatusReader &status_of_it, Log &log);
        std::string name;
        ViewReader views;           ///< of operators, and of the charts
        ViewReader anonymous_views; ///< of everybody else: they delay no operator
        ActionRunner actions;
        StatusReader &status;
        History history;
    };

    asio::awaitable<HttpResponse> view(Database &database, const HttpRequest &request);
    asio::awaitable<HttpResponse> act(Database &database, const HttpRequest &request);
    asio::awaitable<void> watch(Database &database);
    asio::awaitable<void> read_history(Database &database);
    [[nodiscard]] Database *database_of(const HttpRequest &request);

    asio::any_io_executor executor_;
    Access &access_;
    Log &log_;
    std::deque<Database> databases_;
    std::deque<asio::steady_timer> timers_;
    bool closed_ = false;
};

} // namespace stacksaga::coordinator
