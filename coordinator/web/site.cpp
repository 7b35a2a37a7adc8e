#include "web/site.hpp"

#include <asio/awaitable.hpp>

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

namespace stacksaga::coordinator {
namespace {

/// The paths of a listener for probes and scrapers alone.
bool is_for_machines(const std::string &path) {
    return path == "/metrics" || path == "/livez" || path == "/readyz" || path == "/health";
}

HttpResponse elsewhere(const HttpAddress &address) {
    return {404,
            "text/plain; charset=utf-8",
            address.empty() ? "It is not served.\n" : "It is served at " + address.text() + ".\n",
            {}};
}

HttpResponse read_only() {
    HttpResponse response{405, "text/plain; charset=utf-8", "Only GET and HEAD are allowed.\n", {}};
    response.headers.emplace_back("Allow", "GET, HEAD");
    return response;
}

asio::awaitable<HttpResponse> ready(HttpResponse response) {
    co_return response;
}

AccessSettings access_settings(const Config &config) {
    AccessSettings settings = config.access;
    settings.names = config.http.names;
    return settings;
}

} // namespace

Site::Site(asio::io_context &io, const Config &config, Log &log, std::string role)
    : log_(log), http_(config.http), metrics_http_(config.metrics_http),
      access_(io.get_executor(), access_settings(config), log), routes_(std::move(role)),
      api_(io.get_executor(), access_, log),
      server_(io, config.http, [this](HttpRequest request) { return answer(std::move(request)); }) {
    const std::vector<std::string> names = database_names(config.databases);
    for (std::size_t i = 0; i < names.size(); ++i) {
        auto reader = std::make_unique<StatusReader>(io.get_executor(), config.databases[i],
                                                     [&log](std::string_view notice) {
                                                         log.debug("notice", {{"notice", notice}});
                                                     });
        api_.add_database(names[i], config.databases[i], *reader);
        routes_.add_database(names[i], std::move(reader));
    }
    if (config.once)
        return;
    if (!metrics_http_.empty()) {
        metrics_http_.names = http_.names;
        metrics_server_.emplace(io, metrics_http_, [this](HttpRequest request) {
            return answer_machine(std::move(request));
        });
        listen(*metrics_server_, metrics_http_, false);
    }
    if (!http_.empty()) {
        listen(server_, http_, config.http_is_default);
        api_.start();
    }
}

asio::awaitable<HttpResponse> Site::answer(HttpRequest request) {
    if (request.path.starts_with("/api/"))
        return api_.answer(std::move(request));
    if (request.method == "POST")
        return ready(read_only());
    if (request.path == "/metrics" && !metrics_http_.empty())
        return ready(elsewhere(metrics_http_));
    return routes_.answer(std::move(request));
}

asio::awaitable<HttpResponse> Site::answer_machine(HttpRequest request) {
    if (request.method == "POST")
        return ready(read_only());
    if (!is_for_machines(request.path))
        return ready(elsewhere(http_));
    return routes_.answer(std::move(request));
}

void Site::listen(HttpServer &server, const HttpAddress &address, bool is_default) {
    try {
        server.start();
        log_.info("listening", {{"http", address.text()}});
    } catch (const std::runtime_error &error) {
        if (!is_default)
            throw;
        log_.warn(
            "HTTP is not served",
            {{"error", error.what()}, {"hint", "Choose another address with --http HOST:PORT."}});
    }
}

void Site::stop() noexcept {
    server_.stop();
    if (metrics_server_)
        metrics_server_->stop();
    routes_.close();
    api_.close();
    access_.close();
}

} // namespace stacksaga::coordinator
