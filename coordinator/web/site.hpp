// Everything that the daemon serves over HTTP: its listeners, probes, metrics, the page and its
// data.
#pragma once

#include "base/config.hpp"
#include "base/log.hpp"
#include "http/server.hpp"
#include "web/access.hpp"
#include "web/api.hpp"
#include "web/routes.hpp"

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <optional>
#include <string>

namespace stacksaga::coordinator {

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
    asio::awaitable<HttpResponse> answer(HttpRequest request);
    asio::awaitable<HttpResponse> answer_machine(HttpRequest request);
    void listen(HttpServer &server, const HttpAddress &address, bool is_default);

    Log &log_;
    HttpAddress http_;
    HttpAddress metrics_http_;
    Access access_;
    HttpRoutes routes_;
    Api api_;
    HttpServer server_;
    std::optional<HttpServer> metrics_server_;
};

} // namespace stacksaga::coordinator
