// Reads finished sagas of distributed traces, as OTLP has them, over a connection of its own.
#pragma once

#include "db/shared_connection.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// A saga that has finished, and when: microseconds since 1970 on the database's clock.
struct FinishedSaga {
    std::int64_t finished_at = 0;
    std::string id; ///< may be empty, and is then before every id

    auto operator<=>(const FinishedSaga &) const = default;
};

/// The spans of some sagas.
struct SpanDocument {
    int spans = 0;
    std::string json; ///< an ExportTraceServiceRequest
};

/// Lifecycle: constructed, read by one coroutine, close() at the end. A failure is thrown as
/// StoreError.
class TraceReader {
public:
    static constexpr int page = 1000;

    TraceReader(const asio::any_io_executor &executor, std::string conninfo,
                Connection::NoticeHandler on_notice);

    /// Whether this daemon exports the sagas of the database: of all that want to one does, for as
    /// long as its connection lasts.
    asio::awaitable<bool> is_exporter();

    /// Microseconds since 1970 on the database's clock.
    asio::awaitable<std::int64_t> now();

    /// Up to `page` sagas that finished after this one, in order.
    asio::awaitable<std::vector<FinishedSaga>> finished_after(const FinishedSaga &last);

    asio::awaitable<SpanDocument> spans_of(std::span<const FinishedSaga> sagas);

    void close() noexcept { connection_.close(); }

private:
    SharedConnection connection_;
};

} // namespace stacksaga::coordinator
