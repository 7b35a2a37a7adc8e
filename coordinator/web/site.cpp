#include "web/site.hpp"

#include "base/log.hpp"
#include "base/task_group.hpp"
#include "db/conninfo.hpp"
#include "page_files.hpp"

#include <asio/awaitable.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

namespace stacksaga::coordinator {
namespace {

constexpr const char *plain = "text/plain; charset=utf-8";

/// For every viewer, so without PostgreSQL's DETAIL, which may hold values of rows.
std::string explain_to_viewers(const StoreError &error) {
    if (error.kind == ErrorClass::reconnect)
        return fmt::format("{}\n", no_answer);
    return explain({error.kind, error.what(), error.sqlstate, {}, error.hint});
}

HttpResponse unavailable(const StoreError &error) {
    return {503, plain, explain_to_viewers(error)};
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

asio::awaitable<HttpResponse> respond(HttpResponse response) {
    co_return response;
}

/// The paths of a listener for probes and scrapers alone.
bool is_for_machines(const std::string &path) {
    return path == "/metrics" || path == "/livez" || path == "/readyz" || path == "/health";
}

HttpResponse elsewhere(const HttpAddress &address) {
    return {404,
            plain,
            address.empty() ? "It is not served.\n" : "It is served at " + address.text() + ".\n",
            {}};
}

HttpResponse read_only() {
    HttpResponse response{405, plain, "Only GET and HEAD are allowed.\n", {}};
    response.headers.emplace_back("Allow", "GET, HEAD");
    return response;
}

AccessSettings access_settings(const Config &config) {
    AccessSettings settings = config.access;
    settings.names = config.http.names;
    return settings;
}

/// The answer of one database: a value, or an error.
template <class Value> struct DatabaseAnswer {
    std::optional<Value> value;
    std::optional<StoreError> error;
};

template <class Value> using Question = std::function<asio::awaitable<Value>(StatusReader &)>;

template <class Value>
asio::awaitable<void> ask_one(const Question<Value> &question, StatusReader &reader,
                              DatabaseAnswer<Value> &answer) {
    try {
        answer.value = co_await question(reader);
    } catch (const StoreError &error) {
        answer.error = error;
    }
}

/// Asks all databases concurrently; the answers are in their order. Callers name the question in a
/// variable: g++ 12 destroys a temporary of a co_await twice.
template <class Value, class Databases>
asio::awaitable<std::vector<DatabaseAnswer<Value>>> ask_all(const Databases &databases,
                                                            const Question<Value> &question) {
    std::vector<DatabaseAnswer<Value>> answers(databases.size());
    std::vector<asio::awaitable<void>> tasks;
    for (std::size_t i = 0; i < databases.size(); ++i)
        tasks.push_back(ask_one(question, *databases[i]->reader, answers[i]));
    co_await run_task_group(std::move(tasks), true);
    co_return answers;
}

} // namespace

std::vector<std::string> database_names(const std::vector<std::string> &conninfos) {
    std::vector<std::string> names;
    std::set<std::string> taken;
    for (const std::string &conninfo : conninfos) {
        const std::string label = database_label(conninfo);
        std::string name = label.empty() ? "default" : label;
        for (int number = 2; !taken.insert(name).second; ++number)
            name = fmt::format("{} ({})", label.empty() ? "default" : label, number);
        names.push_back(std::move(name));
    }
    return names;
}

asio::awaitable<HttpResponse> Site::answer_viewer(HttpRequest request) {
    ++requests_;
    constexpr std::string_view saga_prefix = "/saga/";
    const std::string &path = request.path;
    const auto wanted = request.parameters.find("database");
    Databases databases;
    std::string names;
    for (Served &each : databases_) {
        names += (names.empty() ? "" : ", ") + each.name;
        if (wanted == request.parameters.end() || wanted->second == each.name)
            databases.push_back(&each);
    }
    if (databases.empty())
        return respond(
            {404, plain,
             fmt::format("This daemon serves no database of that name. It serves: {}.\n", names)});
    if (path == "/livez")
        return respond({200, plain, "ok\n"});
    if (path == "/readyz")
        return ready(databases);
    if (path == "/health")
        return health(databases);
    if (path == "/metrics")
        return metrics(databases);
    if (path == "/status")
        return status(databases);
    if (path.starts_with(saga_prefix))
        return timeline(databases, path.substr(saga_prefix.size()));
    for (const PageFile &file : page_files)
        if (path == file.path)
            return respond({200, file.content_type, std::string(file.body)});
    return respond(
        {404, plain,
         "Not found. The paths are /, /livez, /readyz, /health, /metrics, /status, /saga/ID and those "
         "below /api.\n"});
}

asio::awaitable<HttpResponse> Site::ready(Databases databases) {
    const Question<bool> question = [](StatusReader &reader) -> asio::awaitable<bool> {
        co_await reader.check_ready();
        co_return true;
    };
    const auto answers = co_await ask_all(databases, question);
    std::string complaints;
    for (std::size_t i = 0; i < answers.size(); ++i) {
        if (answers[i].error)
            complaints += (databases.size() > 1 ? databases[i]->name + ": " : std::string()) +
                          explain(*answers[i].error);
    }
    const bool good = complaints.empty();
    co_return HttpResponse{good ? 200 : 503, plain, good ? "ok\n" : complaints};
}

asio::awaitable<HttpResponse> Site::health(Databases databases) {
    const HttpResponse readiness = co_await ready(databases);
    const auto up = std::chrono::duration_cast<std::chrono::seconds>(
        std::chrono::steady_clock::now() - started_);
    std::string text = fmt::format("stacksaga-coordinator {} {}, up {} s\nlive: ok\nready: {}",
                                   STACKSAGA_VERSION, role_, up.count(), readiness.body);
    const Question<std::string> question = [](StatusReader &reader) { return reader.rings(); };
    const auto answers = co_await ask_all(databases, question);
    for (std::size_t i = 0; i < answers.size(); ++i)
        if (answers[i].value)
            text += (databases.size() > 1 ? databases[i]->name + "\n" : std::string()) +
                    *answers[i].value + "\n";
    co_return HttpResponse{readiness.status, plain, std::move(text)};
}

MetricDescriptions Site::descriptions() const {
    MetricDescriptions all;
    for (const Served &each : databases_)
        all.insert(each.reader->descriptions().begin(), each.reader->descriptions().end());
    all["stacksaga_coordinator_database_up"] = {"gauge",
                                                "1 when the database answered this scrape, else 0"};
    all["stacksaga_coordinator_http_requests_total"] = {
        "counter", "requests over HTTP since the daemon started"};
    all["stacksaga_coordinator_info"] = {"gauge", "1; the version and the role of the daemon"};
    return all;
}

asio::awaitable<HttpResponse> Site::metrics(Databases databases) {
    const Question<std::vector<Sample>> question = [](StatusReader &reader) {
        return reader.metrics();
    };
    const auto answers = co_await ask_all(databases, question);
    std::vector<Sample> samples;
    for (std::size_t i = 0; i < answers.size(); ++i) {
        // A scrape succeeds even if a database fails: a sample reports the failure.
        std::vector<Sample> of_one = answers[i].value.value_or(std::vector<Sample>{});
        of_one.push_back({"stacksaga_coordinator_database_up", {}, answers[i].value ? 1.0 : 0.0});
        for (Sample &sample : of_one) {
            if (databases_.size() > 1)
                sample.labels.emplace("database", databases[i]->name);
            samples.push_back(std::move(sample));
        }
    }
    samples.push_back({"stacksaga_coordinator_http_requests_total", {}, requests_});
    samples.push_back(
        {"stacksaga_coordinator_info", {{"version", STACKSAGA_VERSION}, {"role", role_}}, 1});
    std::string body = format_exposition(std::move(samples), descriptions());
    co_return HttpResponse{200, exposition_content_type, std::move(body)};
}

asio::awaitable<HttpResponse> Site::status(Databases databases) {
    const Question<std::string> question = [](StatusReader &reader) { return reader.status(); };
    auto answers = co_await ask_all(databases, question);
    if (databases.size() == 1) {
        if (answers.front().error)
            co_return unavailable(*answers.front().error);
        std::string body = std::move(*answers.front().value); // g++ 12 destroys it twice otherwise
        co_return HttpResponse{200, "application/json", std::move(body)};
    }
    std::string list;
    for (std::size_t i = 0; i < answers.size(); ++i)
        list += fmt::format("{}{{\"name\": {}, {}: {}}}", list.empty() ? "" : ", ",
                            quoted_json(databases[i]->name),
                            answers[i].value ? "\"status\"" : "\"error\"",
                            answers[i].value ? *answers[i].value
                                             : quoted_json(explain_to_viewers(*answers[i].error)));
    std::string body = fmt::format("{{\"databases\": [{}]}}", list);
    co_return HttpResponse{200, "application/json", std::move(body)};
}

asio::awaitable<HttpResponse> Site::timeline(Databases databases, std::string saga_id) {
    if (!is_uuid(saga_id))
        co_return HttpResponse{400, plain, "The id of a saga is a uuid: /saga/ID.\n"};
    const Question<std::vector<std::string>> question = [&saga_id](StatusReader &reader) {
        return reader.timeline(saga_id);
    };
    const auto answers = co_await ask_all(databases, question);
    for (const auto &answer : answers)
        if (answer.value && !answer.value->empty())
            co_return HttpResponse{200, plain, fmt::format("{}\n", fmt::join(*answer.value, "\n"))};
    for (const auto &answer : answers)
        if (answer.error)
            co_return unavailable(*answer.error);
    co_return HttpResponse{404, plain, "No saga has this id.\n"};
}

Site::Site(asio::io_context &io, const Config &config, Log &log, std::string role)
    : log_(log), role_(std::move(role)), http_(config.http), metrics_http_(config.metrics_http),
      access_(io.get_executor(), access_settings(config), log),
      api_(io.get_executor(), access_, log),
      server_(io, config.http, [this](HttpRequest request) { return answer(std::move(request)); }) {
    const std::vector<std::string> names = database_names(config.databases);
    for (std::size_t i = 0; i < names.size(); ++i) {
        auto reader = std::make_unique<StatusReader>(io.get_executor(), config.databases[i],
                                                     [&log](std::string_view notice) {
                                                         log.debug("notice", {{"notice", notice}});
                                                     });
        api_.add_database(names[i], config.databases[i], *reader);
        databases_.push_back({names[i], std::move(reader)});
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
        return respond(read_only());
    if (request.path == "/metrics" && !metrics_http_.empty())
        return respond(elsewhere(metrics_http_));
    return answer_viewer(std::move(request));
}

asio::awaitable<HttpResponse> Site::answer_machine(HttpRequest request) {
    if (request.method == "POST")
        return respond(read_only());
    if (!is_for_machines(request.path))
        return respond(elsewhere(http_));
    return answer_viewer(std::move(request));
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
    for (Served &each : databases_)
        each.reader->close();
    api_.close();
    access_.close();
}

} // namespace stacksaga::coordinator
