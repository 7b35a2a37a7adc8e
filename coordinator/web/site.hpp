// Everything that the daemon serves over HTTP: its listeners, probes, metrics, status, the page and
// its data.
#pragma once

#include "base/config.hpp"
#include "base/log.hpp"
#include "http/message.hpp"
#include "http/server.hpp"
#include "web/access.hpp"
#include "web/api.hpp"
#include "web/readers.hpp"

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// The names of databases in answers and labels: database_label(), with a number added when two are
/// equal.
[[nodiscard]] std::vector<std::string> database_names(const std::vector<std::string> &conninfos);

/// | path | answers |
/// |---|---|
/// | /livez | 200 while the loop turns |
/// | /readyz | 200 when each database answers and has the extension, else 503 and the reasons |
/// | /health | both, and the rings, as text |
/// | /metrics | Prometheus' text format; of several databases, each with a label |
/// | /status | stacksaga.status(); of several databases, a list |
/// | /saga/ID | the timeline of a saga, one line for each event |
/// | /, and the names of the files in page/ | the page |
///
/// With ?database=NAME the answer is about that database alone.
///
/// Lifecycle: constructed, which listens unless the configuration says otherwise; stop() at the
/// end. Throws OperatorsError, or std::runtime_error when it cannot listen.
class Site {
public:
    Site(asio::io_context &io, const Config &config, Log &log, std::string role);
    Site(const Site &) = delete;
    Site &operator=(const Site &) = delete;
    ~Site() { stop(); }

    /// Reads the operators again.
    void reload() { access_.reload(); }

    void stop() noexcept;

private:
    struct Served {
        std::string name; ///< from database_names()
        std::unique_ptr<StatusReader> reader;
    };
    using Databases = std::vector<Served *>;

    asio::awaitable<HttpResponse> answer(HttpRequest request);
    asio::awaitable<HttpResponse> answer_machine(HttpRequest request);
    asio::awaitable<HttpResponse> answer_viewer(HttpRequest request);
    asio::awaitable<HttpResponse> ready(Databases databases);
    asio::awaitable<HttpResponse> health(Databases databases);
    asio::awaitable<HttpResponse> metrics(Databases databases);
    asio::awaitable<HttpResponse> status(Databases databases);
    asio::awaitable<HttpResponse> timeline(Databases databases, std::string saga_id);
    [[nodiscard]] MetricDescriptions descriptions() const;
    void listen(HttpServer &server, const HttpAddress &address, bool is_default);

    Log &log_;
    std::string role_;
    SteadyTime started_ = std::chrono::steady_clock::now();
    double requests_ = 0;
    std::vector<Served> databases_;
    HttpAddress http_;
    HttpAddress metrics_http_;
    Access access_;
    Api api_;
    HttpServer server_;
    std::optional<HttpServer> metrics_server_;
};

} // namespace stacksaga::coordinator
