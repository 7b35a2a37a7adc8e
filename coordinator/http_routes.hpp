// What the daemon answers over HTTP: probes, metrics, status, and a page for people.
#pragma once

#include "http_server.hpp"
#include "status_reader.hpp"

#include <memory>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// What to call databases by in pages and labels: as database_label(), told apart by a number where
/// two are alike or say nothing.
[[nodiscard]] std::vector<std::string> database_names(const std::vector<std::string> &conninfos);

/// Lifecycle: show() each database, then answer() any number of requests, close() at the end.
/// Thread: that of the io_context.
class Pages {
public:
    explicit Pages(std::string role);

    /// Adds a database; `name` as database_names() has it.
    void show(std::string name, std::unique_ptr<Observer> observer);

    /// | path | answers |
    /// |---|---|
    /// | /livez | 200 while the loop turns |
    /// | /readyz | 200 when each database answers and has the extension, else 503 and why |
    /// | /health | both, for people |
    /// | /metrics | Prometheus' text format; of several databases, each with a label |
    /// | /status | stacksaga.status(); of several databases, a list |
    /// | /saga/ID | the story of a saga, one line an event |
    /// | /, /page.css, /page.js | the page |
    ///
    /// With ?database=NAME they are about that database alone.
    asio::awaitable<HttpResponse> answer(HttpRequest request);

    void close() noexcept;

private:
    struct Shown {
        std::string name;
        std::unique_ptr<Observer> observer;
    };
    using Databases = std::vector<Shown *>;

    asio::awaitable<HttpResponse> ready(Databases databases);
    asio::awaitable<HttpResponse> health(Databases databases);
    asio::awaitable<HttpResponse> metrics(Databases databases);
    asio::awaitable<HttpResponse> status(Databases databases);
    asio::awaitable<HttpResponse> timeline(Databases databases, std::string saga_id);
    [[nodiscard]] MetricDescriptions descriptions() const;

    std::vector<Shown> shown_;
    std::string role_;
    SteadyTime started_;
    double requests_ = 0;
};

} // namespace stacksaga::coordinator
