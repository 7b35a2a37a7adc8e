#include "pages.hpp"

#include "page_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace stacksaga::coordinator {
namespace {

constexpr const char *plain = "text/plain; charset=utf-8";

HttpResponse unavailable(const StoreError &error) {
    return {503, plain, explain(error)};
}

bool is_uuid(const std::string &text) {
    if (text.size() != 36)
        return false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : std::isxdigit(static_cast<unsigned char>(text[i])) == 0)
            return false;
    }
    return true;
}

} // namespace

Pages::Pages(Observer &observer, std::string role)
    : observer_(observer), role_(std::move(role)), started_(std::chrono::steady_clock::now()) {}

asio::awaitable<HttpResponse> Pages::answer(HttpRequest request) {
    ++requests_;
    constexpr std::string_view saga_prefix = "/saga/";
    const std::string &path = request.path;
    if (path == "/livez")
        co_return HttpResponse{200, plain, "ok\n"};
    if (path == "/readyz")
        co_return co_await ready();
    if (path == "/health")
        co_return co_await health();
    if (path == "/metrics")
        co_return co_await metrics();
    if (path == "/status")
        co_return co_await status();
    if (path.starts_with(saga_prefix))
        co_return co_await timeline(path.substr(saga_prefix.size()));
    for (const PageFile &file : page_files)
        if (path == file.path)
            co_return HttpResponse{200, file.content_type, std::string(file.body)};
    co_return HttpResponse{
        404, plain,
        "Not found. There are /, /livez, /readyz, /health, /metrics, /status and /saga/ID.\n"};
}

asio::awaitable<HttpResponse> Pages::ready() {
    try {
        co_await observer_.check_ready();
        co_return HttpResponse{200, plain, "ok\n"};
    } catch (const StoreError &error) {
        co_return unavailable(error);
    }
}

asio::awaitable<HttpResponse> Pages::health() {
    const HttpResponse readiness = co_await ready();
    const auto up = std::chrono::duration_cast<std::chrono::seconds>(
        std::chrono::steady_clock::now() - started_);
    co_return HttpResponse{readiness.status, plain,
                           fmt::format("stacksaga-coordinator {} {}, up {} s\nlive: ok\nready: {}",
                                       STACKSAGA_VERSION, role_, up.count(), readiness.body)};
}

MetricDescriptions Pages::descriptions() const {
    MetricDescriptions all = observer_.descriptions();
    all["stacksaga_coordinator_database_up"] = {"gauge",
                                                "1 when the database answered this scrape, else 0"};
    all["stacksaga_coordinator_http_requests_total"] = {
        "counter", "requests over HTTP since the daemon started"};
    all["stacksaga_coordinator_info"] = {"gauge", "1; the version and the role of the daemon"};
    return all;
}

asio::awaitable<HttpResponse> Pages::metrics() {
    std::vector<Sample> samples;
    double up = 0;
    try {
        samples = co_await observer_.metrics();
        up = 1;
    } catch (const StoreError &) {
        // The daemon's own samples say so: a scrape must not fail when the database does.
    }
    samples.push_back({"stacksaga_coordinator_database_up", {}, up});
    samples.push_back({"stacksaga_coordinator_http_requests_total", {}, requests_});
    samples.push_back(
        {"stacksaga_coordinator_info", {{"version", STACKSAGA_VERSION}, {"role", role_}}, 1});
    std::string body = format_exposition(std::move(samples), descriptions());
    co_return HttpResponse{200, exposition_content_type, std::move(body)};
}

asio::awaitable<HttpResponse> Pages::status() {
    try {
        std::string body =
            co_await observer_.status(); // g++ 12 destroys it twice inside the braces
        co_return HttpResponse{200, "application/json", std::move(body)};
    } catch (const StoreError &error) {
        co_return unavailable(error);
    }
}

asio::awaitable<HttpResponse> Pages::timeline(std::string saga_id) {
    if (!is_uuid(saga_id))
        co_return HttpResponse{400, plain, "A saga's id is a uuid: /saga/ID.\n"};
    try {
        const std::vector<std::string> lines = co_await observer_.timeline(saga_id);
        if (lines.empty())
            co_return HttpResponse{404, plain, "No saga has this id.\n"};
        co_return HttpResponse{200, plain, fmt::format("{}\n", fmt::join(lines, "\n"))};
    } catch (const StoreError &error) {
        co_return unavailable(error);
    }
}

} // namespace stacksaga::coordinator
