#include "otlp/exporter.hpp"

#include "db/conninfo.hpp"
#include "db/shared_connection.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/redirect_error.hpp>
#include <asio/steady_timer.hpp>
#include <asio/thread_pool.hpp>
#include <asio/use_awaitable.hpp>
#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>

namespace stacksaga::coordinator {
namespace {

constexpr Duration period = std::chrono::seconds(5);
/// Sagas in a request: some megabytes at most, which collectors take.
constexpr std::size_t sagas_in_request = 100;
constexpr Duration statement_deadline = std::chrono::seconds(10);

constexpr const char *SQL_SESSION =
    "SELECT pg_catalog.set_config('statement_timeout', '11s', false),"
    "       pg_catalog.set_config('default_transaction_read_only', 'on', false)";
constexpr const char *SQL_HOLD = "SELECT stacksaga_internal.hold_span_export()";
constexpr const char *SQL_NOW =
    "SELECT (extract(epoch FROM stacksaga.clock_now()) * 1000000)::bigint";
struct FinishedColumns {
    enum { saga_id, finished_at };
};
constexpr const char *SQL_FINISHED =
    "SELECT saga_id, (extract(epoch FROM finished_at) * 1000000)::bigint AS finished_at"
    "  FROM stacksaga.traced_sagas('epoch'::timestamptz + $1::bigint * interval '1 microsecond',"
    "           nullif($2::text, '')::uuid, $3::integer)";
struct SpansColumns {
    enum { count, document };
};
constexpr const char *SQL_SPANS =
    "SELECT pg_catalog.count(*), pg_catalog.jsonb_build_object('resourceSpans', pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object("
    "           'resource', pg_catalog.jsonb_build_object('attributes', pg_catalog.jsonb_build_array("
    "               pg_catalog.jsonb_build_object('key', 'service.name', 'value', '{\"stringValue\": \"stacksaga\"}'::jsonb),"
    "               pg_catalog.jsonb_build_object('key', 'db.namespace', 'value',"
    "                   pg_catalog.jsonb_build_object('stringValue', pg_catalog.current_database())))),"
    "           'scopeSpans', pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object("
    "               'scope', pg_catalog.jsonb_build_object('name', 'stacksaga', 'version', $2::text),"
    "               'spans', coalesce(pg_catalog.jsonb_agg(s.span), '[]'))))))"
    "  FROM (SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object("
    "                   'traceId', trace_id, 'spanId', span_id, 'parentSpanId', parent_span_id,"
    "                   'name', name, 'kind', 1,"
    "                   'startTimeUnixNano', (extract(epoch FROM started_at) * 1000000)::bigint || '000',"
    "                   'endTimeUnixNano', (extract(epoch FROM finished_at) * 1000000)::bigint || '000',"
    "                   'attributes', ("
    "                       SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object('key', a.key, 'value', pg_catalog.jsonb_build_object("
    "                                  CASE pg_catalog.jsonb_typeof(a.value) WHEN 'number' THEN 'intValue'"
    "                                  ELSE 'stringValue' END, a.value #>> '{}')))"
    "                         FROM pg_catalog.jsonb_each(attributes) AS a),"
    "                   'status', CASE WHEN error IS NULL THEN pg_catalog.jsonb_build_object('code', 1)"
    "                             ELSE pg_catalog.jsonb_build_object('code', 2, 'message', pg_catalog.left(error, 1000)) END)) AS span"
    "          FROM stacksaga.saga_spans($1::uuid[])) AS s";

/// The spans of some sagas.
struct SpanDocument {
    int spans = 0;
    std::string json; ///< an ExportTraceServiceRequest
};

/// Reads finished sagas of distributed traces, as OTLP has them, over a connection of its own.
/// Lifecycle: constructed, read by one coroutine, close() at the end. A failure is thrown as
/// StoreError.
class TraceReader {
public:
    static constexpr int page = 1000;

    TraceReader(const asio::any_io_executor &executor, std::string conninfo,
                Connection::NoticeHandler on_notice)
        : connection_(executor, std::move(conninfo), std::move(on_notice),
                      {SQL_SESSION, monitor_kinds, statement_deadline}) {}

    /// Whether this daemon exports the sagas of the database. Of all daemons that are asked to, one
    /// does, for as long as its connection lasts.
    asio::awaitable<bool> is_exporter() {
        const Rows rows = co_await connection_.query(SQL_HOLD, no_parameters);
        co_return rows.boolean(0, only_column);
    }

    /// Microseconds since 1970 on the database's clock.
    asio::awaitable<std::int64_t> now() {
        const Rows rows = co_await connection_.query(SQL_NOW, no_parameters);
        co_return rows.int64(0, only_column);
    }

    /// Up to `page` sagas that finished after this one, in order.
    asio::awaitable<std::vector<FinishedSaga>> finished_after(const FinishedSaga &last) {
        const Parameters parameters{std::to_string(last.finished_at), last.id,
                                    std::to_string(page)};
        const Rows rows = co_await connection_.query(SQL_FINISHED, parameters);
        std::vector<FinishedSaga> sagas;
        for (int row = 0; row < rows.size(); ++row)
            sagas.push_back({rows.int64(row, FinishedColumns::finished_at),
                             std::string(rows.text(row, FinishedColumns::saga_id))});
        co_return sagas;
    }

    asio::awaitable<SpanDocument> spans_of(std::span<const FinishedSaga> sagas) {
        std::string ids;
        for (const FinishedSaga &saga : sagas)
            ids += (ids.empty() ? "{" : ",") + saga.id;
        const Parameters parameters{ids + "}", STACKSAGA_VERSION};
        const Rows rows = co_await connection_.query(SQL_SPANS, parameters);
        co_return SpanDocument{static_cast<int>(rows.int64(0, SpansColumns::count)),
                               std::string(rows.text(0, SpansColumns::document))};
    }

    void close() noexcept { connection_.close(); }

private:
    SharedConnection connection_;
};

constexpr long connect_milliseconds = 3000;
constexpr long request_milliseconds = 10000;

struct EndHandle {
    void operator()(CURL *handle) const noexcept { curl_easy_cleanup(handle); }
};
struct EndList {
    void operator()(curl_slist *list) const noexcept { curl_slist_free_all(list); }
};

using HeaderList = std::unique_ptr<curl_slist, EndList>;

HeaderList header_list(const std::vector<std::string> &headers) {
    HeaderList list(curl_slist_append(nullptr, "Content-Type: application/json"));
    for (const std::string &line : headers)
        curl_slist_append(list.get(), line.c_str());
    return list;
}

std::size_t ignore_answer(char *, std::size_t, std::size_t bytes, void *) {
    return bytes;
}

/// Not 0 ends the request.
int end_when_closed(void *closed, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<const std::atomic<bool> *>(closed)->load() ? 1 : 0;
}

/// Sends documents by HTTP or HTTPS with libcurl. Lifecycle: constructed; post() any number of
/// times, one after the other; close() ends a request that runs. Threads: post() from one; the
/// request runs on another.
class HttpPoster {
public:
    /// `headers` are lines NAME: VALUE of each request, besides its content type.
    HttpPoster(std::string url, std::vector<std::string> headers)
        : url_(std::move(url)), headers_(std::move(headers)), thread_(1) {
        curl_global_init(CURL_GLOBAL_DEFAULT);
    }
    HttpPoster(const HttpPoster &) = delete;
    HttpPoster &operator=(const HttpPoster &) = delete;
    ~HttpPoster() {
        close();
        thread_.join();
    }

    /// Posts JSON, for at most ten seconds. Throws nothing but bad_alloc.
    asio::awaitable<PostResult> post(std::string json) {
        auto request = [](const HttpPoster &poster,
                          std::string body) -> asio::awaitable<PostResult> {
            co_return poster.perform(body);
        };
        auto on_other_thread =
            asio::co_spawn(thread_, request(*this, std::move(json)), asio::use_awaitable);
        co_return co_await std::move(on_other_thread);
    }

    void close() noexcept { closed_ = true; }

private:
    [[nodiscard]] PostResult perform(const std::string &json) const;

    std::string url_;
    std::vector<std::string> headers_;
    std::atomic<bool> closed_ = false;
    asio::thread_pool thread_;
};

PostResult HttpPoster::perform(const std::string &json) const {
    const std::unique_ptr<CURL, EndHandle> handle(curl_easy_init());
    const HeaderList headers = header_list(headers_);
    CURL *curl = handle.get();
    curl_easy_setopt(curl, CURLOPT_URL, url_.c_str());
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(json.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, json.c_str());
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "stacksaga-coordinator/" STACKSAGA_VERSION);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, connect_milliseconds);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, request_milliseconds);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore_answer);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, end_when_closed);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &closed_);
    const CURLcode code = curl_easy_perform(curl);
    if (code != CURLE_OK)
        return {0, curl_easy_strerror(code)};
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    return {static_cast<int>(status), {}};
}

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

/// Exports the sagas of one database. Lifecycle: constructed; run() once, until it is cancelled;
/// close() at the end. One thread, and that of its HttpPoster.
class TraceExporter {
public:
    TraceExporter(const asio::any_io_executor &executor, const std::string &conninfo,
                  const OtlpSettings &settings, Log log)
        : reader_(executor, conninfo,
                  [this](std::string_view notice) {
                      log_.debug("notice", {{"notice", notice}});
                  }),
          poster_(traces_url(settings.endpoint), settings.headers), log_(std::move(log)),
          timer_(executor) {}

    /// Exports every five seconds. Failures are logged, and tried again.
    asio::awaitable<void> run();

    void close() noexcept {
        is_closed_ = true;
        timer_.cancel();
        reader_.close();
        poster_.close();
    }

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

asio::awaitable<void> TraceExporter::run() {
    while (!is_closed_) {
        try {
            co_await export_new();
        } catch (const std::exception &error) { // no caller would see what this coroutine throws
            note_failure("sagas are not read", error.what());
        }
        asio::error_code ignored;
        timer_.expires_after(period);
        co_await timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
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

/// Whether the sagas need not be sent again: they were accepted, or refused permanently.
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
        exporters_.push_back(std::make_unique<TraceExporter>(
            io.get_executor(), conninfo, settings, log.with({"on", database_label(conninfo)})));
        asio::co_spawn(io, exporters_.back()->run(), asio::detached);
    }
}

TraceExporters::~TraceExporters() = default;

void TraceExporters::close() noexcept {
    for (const auto &each : exporters_)
        each->close();
}

} // namespace stacksaga::coordinator
