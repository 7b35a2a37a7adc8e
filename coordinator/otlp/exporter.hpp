// Exports finished sagas as spans to a collector of OpenTelemetry, by OTLP over HTTP.
//
// A saga is exported when it has finished. Instants and commits come in another order, so each look
// begins a minute back and leaves out what was sent: a saga whose transaction commits later than
// that after its end is not exported. Nothing is remembered over a restart: then the sagas of the
// last minute may be sent again, with the same ids. While the collector does not answer they wait
// in the database, for an hour.
#pragma once

#include "base/config.hpp"
#include "base/log.hpp"
#include "otlp/http_post.hpp"
#include "otlp/trace_reader.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// The URL that takes traces: as OTEL_EXPORTER_OTLP_ENDPOINT has it, /v1/traces below the endpoint.
[[nodiscard]] std::string traces_url(const std::string &endpoint);

/// What is to be exported, and what was. Pure.
class ExportWindow {
public:
    static constexpr std::int64_t look_back = 60'000'000;  ///< microseconds
    static constexpr std::int64_t longest = 3'600'000'000; ///< that a collector may be away

    /// Begins a look at this instant. Returns where it starts, and whether sagas before it begin to
    /// be given up because nobody took them for too long; this is said once until a look is
    /// complete.
    struct Start {
        FinishedSaga after;
        bool has_given_up = false;
    };
    Start begin(std::int64_t now);

    [[nodiscard]] bool is_sent(const FinishedSaga &saga) const { return sent_.contains(saga); }
    void note_sent(const FinishedSaga &saga) { sent_.insert(saga); }

    /// Ends a look in which everything was sent.
    void complete(std::int64_t now);

    /// Another daemon has exported meanwhile, or nobody: begins anew.
    void forget() noexcept {
        from_.reset();
        sent_.clear();
        is_behind_ = false;
    }

private:
    std::optional<std::int64_t> from_; ///< everything that finished before it is settled
    std::set<FinishedSaga> sent_;      ///< of those that finished after it
    bool is_behind_ = false;           ///< sagas are given up
};

/// Lifecycle: constructed; run() once, until it is cancelled; close() at the end. One thread, and
/// that of its HttpPoster.
class TraceExporter {
public:
    TraceExporter(const asio::any_io_executor &executor, const std::string &conninfo,
                  const OtlpSettings &settings, Log log);

    /// Exports every five seconds. Failures are logged, and tried again.
    asio::awaitable<void> run();

    void close() noexcept;

private:
    asio::awaitable<void> export_new();
    asio::awaitable<bool> send(std::span<const FinishedSaga> sagas);
    void note_failure(std::string_view what, std::string_view error);

    TraceReader reader_;
    HttpPoster poster_;
    Log log_;
    asio::steady_timer timer_;
    ExportWindow window_;
    bool is_failing_ = false; ///< and has been logged
    bool is_closed_ = false;
};

/// The exporters of all databases of a daemon; none without an endpoint. They run until close().
class TraceExporters {
public:
    TraceExporters(asio::io_context &io, const std::vector<std::string> &databases,
                   const OtlpSettings &settings, const Log &log);

    void close() noexcept;

private:
    std::deque<TraceExporter> exporters_;
};

} // namespace stacksaga::coordinator
