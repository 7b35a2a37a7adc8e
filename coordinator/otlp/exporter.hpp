// Exports finished sagas as spans to a collector of OpenTelemetry, by OTLP over HTTP.
//
// A saga is exported when it has finished. Commits do not come in the order of the instants at
// which sagas finished, so each read begins a minute back and skips the sagas that were sent: a
// saga whose transaction commits more than a minute after its end is not exported. A restart
// forgets what was sent: the sagas of the last minute may be sent again, with the same ids. While
// the collector does not answer, sagas wait in the database for up to an hour.
#pragma once

#include "base/config.hpp"
#include "base/log.hpp"

#include <asio/io_context.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// A saga that has finished, and when: microseconds since 1970 on the database's clock.
struct FinishedSaga {
    std::int64_t finished_at = 0;
    std::string id; ///< may be empty, and is then before every id

    auto operator<=>(const FinishedSaga &) const = default;
};

/// The outcome of a request. Without an answer the status is 0, and the error gives the reason.
struct PostResult {
    int status = 0;
    std::string error;

    [[nodiscard]] bool is_accepted() const noexcept { return status >= 200 && status < 300; }
    /// Whether the same request may be accepted later: no answer, too many requests, or a server
    /// that is not ready (OTLP 1.3, "Retryable Response Codes").
    [[nodiscard]] bool may_be_repeated() const noexcept {
        return status == 0 || status == 429 || status == 502 || status == 503 || status == 504;
    }
};

/// The URL for traces: /v1/traces below the endpoint, as with OTEL_EXPORTER_OTLP_ENDPOINT.
[[nodiscard]] std::string traces_url(const std::string &endpoint);

/// The sagas to export, and those that were exported. Pure.
class ExportWindow {
public:
    static constexpr std::int64_t look_back = 60'000'000;  ///< microseconds
    static constexpr std::int64_t longest = 3'600'000'000; ///< that a collector may be away

    /// Begins a round at this instant. Returns where it starts, and whether it gives up older sagas
    /// because the collector did not take them for too long; that is reported once until a round is
    /// complete.
    struct Start {
        FinishedSaga after;
        bool has_given_up = false;
    };
    Start begin(std::int64_t now);

    [[nodiscard]] bool is_sent(const FinishedSaga &saga) const { return sent_.contains(saga); }
    void note_sent(const FinishedSaga &saga) { sent_.insert(saga); }

    /// Ends a round in which everything was sent.
    void complete(std::int64_t now);

    /// Starts over: another daemon has exported in between, or none has.
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

class TraceExporter;

/// The exporters of all databases of a daemon; none without an endpoint. They run until close().
class TraceExporters {
public:
    TraceExporters(asio::io_context &io, const std::vector<std::string> &databases,
                   const OtlpSettings &settings, const Log &log);
    TraceExporters(const TraceExporters &) = delete;
    TraceExporters &operator=(const TraceExporters &) = delete;
    ~TraceExporters();

    void close() noexcept;

private:
    std::vector<std::unique_ptr<TraceExporter>> exporters_;
};

} // namespace stacksaga::coordinator
