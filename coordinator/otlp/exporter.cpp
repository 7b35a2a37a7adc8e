#include "otlp/exporter.hpp"

#include "db/conninfo.hpp"

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/redirect_error.hpp>
#include <asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace stacksaga::coordinator {
namespace {

constexpr Duration period = std::chrono::seconds(5);
/// Sagas in a request: some megabytes at most, which collectors take.
constexpr std::size_t sagas_in_request = 100;

} // namespace

std::string traces_url(const std::string &endpoint) {
    constexpr std::string_view path = "/v1/traces";
    if (endpoint.ends_with(path))
        return endpoint;
    const std::string_view base(endpoint.data(), endpoint.find_last_not_of('/') + 1);
    return fmt::format("{}{}", base, path);
}

ExportWindow::Start ExportWindow::begin(std::int64_t now) {
    Start start;
    if (!from_)
        from_ = now - look_back;
    if (*from_ < now - longest) {
        start.has_given_up = !std::exchange(is_behind_, true);
        from_ = now - longest;
    }
    start.after = {*from_, ""};
    return start;
}

void ExportWindow::complete(std::int64_t now) {
    from_ = std::max(*from_, now - look_back);
    is_behind_ = false;
    sent_.erase(sent_.begin(), sent_.lower_bound({*from_, ""}));
}

TraceExporter::TraceExporter(const asio::any_io_executor &executor, const std::string &conninfo,
                             const OtlpSettings &settings, Log log)
    : reader_(executor, conninfo,
              [this](std::string_view notice) {
                  log_.debug("notice", {{"notice", notice}});
              }),
      poster_(traces_url(settings.endpoint), settings.headers), log_(std::move(log)),
      timer_(executor) {}

asio::awaitable<void> TraceExporter::run() {
    while (!is_closed_) {
        try {
            co_await export_new();
        } catch (const std::exception &error) { // nobody else waits for what this coroutine throws
            note_failure("sagas are not read", error.what());
        }
        asio::error_code ignored;
        timer_.expires_after(period);
        co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
}

void TraceExporter::close() noexcept {
    is_closed_ = true;
    timer_.cancel();
    reader_.close();
    poster_.close();
}

asio::awaitable<void> TraceExporter::export_new() {
    if (!co_await reader_.is_exporter()) {
        window_.forget();
        co_return;
    }
    const std::int64_t now = co_await reader_.now();
    ExportWindow::Start start = window_.begin(now);
    if (start.has_given_up)
        log_.error("sagas were not exported", {{"reason", "for an hour none could be sent"}});
    for (FinishedSaga last = std::move(start.after);;) {
        const std::vector<FinishedSaga> page = co_await reader_.finished_after(last);
        std::vector<FinishedSaga> fresh;
        std::ranges::copy_if(page, std::back_inserter(fresh),
                             [this](const FinishedSaga &saga) { return !window_.is_sent(saga); });
        for (std::size_t i = 0; i < fresh.size(); i += sagas_in_request) {
            const auto part =
                std::span(fresh).subspan(i, std::min(sagas_in_request, fresh.size() - i));
            if (!co_await send(part))
                co_return;
        }
        if (page.size() < static_cast<std::size_t>(TraceReader::page))
            break;
        last = page.back();
    }
    window_.complete(now);
}

/// Whether the sagas are done with: accepted, or refused for good.
asio::awaitable<bool> TraceExporter::send(std::span<const FinishedSaga> sagas) {
    SpanDocument document = co_await reader_.spans_of(sagas);
    if (document.spans > 0) {
        const PostResult result = co_await poster_.post(std::move(document.json));
        if (result.status == 0)
            note_failure("the collector does not answer", result.error);
        else if (!result.is_accepted())
            note_failure("the collector refuses spans", fmt::format("HTTP {}", result.status));
        if (result.may_be_repeated())
            co_return false;
        if (result.is_accepted()) {
            if (is_failing_)
                log_.info("spans are exported again");
            is_failing_ = false;
            log_.debug("exported spans", {{"sagas", sagas.size()}, {"spans", document.spans}});
        }
    }
    for (const FinishedSaga &saga : sagas)
        window_.note_sent(saga);
    co_return true;
}

void TraceExporter::note_failure(std::string_view what, std::string_view error) {
    if (!std::exchange(is_failing_, true) && !is_closed_)
        log_.warn("spans are not exported", {{"reason", what}, {"error", error}});
}

TraceExporters::TraceExporters(asio::io_context &io, const std::vector<std::string> &databases,
                               const OtlpSettings &settings, const Log &log) {
    if (settings.endpoint.empty())
        return;
    for (const std::string &conninfo : databases) {
        exporters_.emplace_back(io.get_executor(), conninfo, settings,
                                log.with({"on", database_label(conninfo)}));
        asio::co_spawn(io, exporters_.back().run(), asio::detached);
    }
}

void TraceExporters::close() noexcept {
    for (TraceExporter &each : exporters_)
        each.close();
}

} // namespace stacksaga::coordinator
