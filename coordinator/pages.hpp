// What the daemon answers over HTTP: probes, metrics, status, and a page for people.
#pragma once

#include "http_server.hpp"
#include "observer.hpp"

namespace stacksaga::coordinator {

/// Lifecycle: as long as the server that asks it. Thread: that of the io_context.
class Pages {
public:
    Pages(Observer &observer, std::string role);

    /// | path | answers |
    /// |---|---|
    /// | /livez | 200 while the loop turns |
    /// | /readyz | 200 when the database answers and has the extension, else 503 and why |
    /// | /health | both, for people |
    /// | /metrics | Prometheus' text format |
    /// | /status | stacksaga.status() |
    /// | /saga/ID | the story of a saga, one line an event |
    /// | /, /page.css, /page.js | the page |
    asio::awaitable<HttpResponse> answer(HttpRequest request);

private:
    asio::awaitable<HttpResponse> ready();
    asio::awaitable<HttpResponse> health();
    asio::awaitable<HttpResponse> metrics();
    asio::awaitable<HttpResponse> status();
    asio::awaitable<HttpResponse> timeline(std::string saga_id);
    [[nodiscard]] MetricDescriptions descriptions() const;

    Observer &observer_;
    std::string role_;
    SteadyTime started_;
    double requests_ = 0;
};

} // namespace stacksaga::coordinator
