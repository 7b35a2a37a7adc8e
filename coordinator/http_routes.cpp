#include "http_routes.hpp"

#include "conninfo.hpp"
#include "log.hpp"
#include "page_files.hpp"
#include "task_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <optional>
#include <set>

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

/// What one database answered: a value, or why there is none.
template <class Value> struct Answer {
    std::optional<Value> value;
    std::optional<StoreError> error;
};

template <class Value> using Question = std::function<asio::awaitable<Value>(Observer &)>;

template <class Value>
asio::awaitable<void> ask_one(const Question<Value> &question, Observer &observer,
                              Answer<Value> &answer) {
    try {
        answer.value = co_await question(observer);
    } catch (const StoreError &error) {
        answer.error = error;
    }
}

/// Asks all databases at the same time; the answers are in their order. The question has a name
/// where this is called: g++ 12 destroys a temporary of a co_await twice.
template <class Value, class Databases>
asio::awaitable<std::vector<Answer<Value>>> ask_all(const Databases &databases,
                                                    const Question<Value> &question) {
    std::vector<Answer<Value>> answers(databases.size());
    std::vector<asio::awaitable<void>> tasks;
    for (std::size_t i = 0; i < databases.size(); ++i)
        tasks.push_back(ask_one(question, *databases[i]->observer, answers[i]));
    co_await side_by_side(std::move(tasks), true);
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

Pages::Pages(std::string role)
    : role_(std::move(role)), started_(std::chrono::steady_clock::now()) {}

void Pages::show(std::string name, std::unique_ptr<Observer> observer) {
    shown_.push_back({std::move(name), std::move(observer)});
}

void Pages::close() noexcept {
    for (Shown &each : shown_)
        each.observer->close();
}

asio::awaitable<HttpResponse> Pages::answer(HttpRequest request) {
    ++requests_;
    constexpr std::string_view saga_prefix = "/saga/";
    const std::string &path = request.path;
    const auto wanted = request.parameters.find("database");
    Databases databases;
    std::string names;
    for (Shown &each : shown_) {
        names += (names.empty() ? "" : ", ") + each.name;
        if (wanted == request.parameters.end() || wanted->second == each.name)
            databases.push_back(&each);
    }
    if (databases.empty())
        co_return HttpResponse{
            404, plain, fmt::format("No database of that name is served. There are: {}.\n", names)};
    if (path == "/livez")
        co_return HttpResponse{200, plain, "ok\n"};
    if (path == "/readyz")
        co_return co_await ready(databases);
    if (path == "/health")
        co_return co_await health(databases);
    if (path == "/metrics")
        co_return co_await metrics(databases);
    if (path == "/status")
        co_return co_await status(databases);
    if (path.starts_with(saga_prefix))
        co_return co_await timeline(databases, path.substr(saga_prefix.size()));
    for (const PageFile &file : page_files)
        if (path == file.path)
            co_return HttpResponse{200, file.content_type, std::string(file.body)};
    co_return HttpResponse{
        404, plain,
        "Not found. There are /, /livez, /readyz, /health, /metrics, /status and /saga/ID.\n"};
}

asio::awaitable<HttpResponse> Pages::ready(Databases databases) {
    const Question<bool> question = [](Observer &observer) -> asio::awaitable<bool> {
        co_await observer.check_ready();
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

asio::awaitable<HttpResponse> Pages::health(Databases databases) {
    const HttpResponse readiness = co_await ready(databases);
    const auto up = std::chrono::duration_cast<std::chrono::seconds>(
        std::chrono::steady_clock::now() - started_);
    co_return HttpResponse{readiness.status, plain,
                           fmt::format("stacksaga-coordinator {} {}, up {} s\nlive: ok\nready: {}",
                                       STACKSAGA_VERSION, role_, up.count(), readiness.body)};
}

MetricDescriptions Pages::descriptions() const {
    MetricDescriptions all;
    for (const Shown &each : shown_)
        all.insert(each.observer->descriptions().begin(), each.observer->descriptions().end());
    all["stacksaga_coordinator_database_up"] = {"gauge",
                                                "1 when the database answered this scrape, else 0"};
    all["stacksaga_coordinator_http_requests_total"] = {
        "counter", "requests over HTTP since the daemon started"};
    all["stacksaga_coordinator_info"] = {"gauge", "1; the version and the role of the daemon"};
    return all;
}

asio::awaitable<HttpResponse> Pages::metrics(Databases databases) {
    const Question<std::vector<Sample>> question = [](Observer &observer) {
        return observer.metrics();
    };
    const auto answers = co_await ask_all(databases, question);
    std::vector<Sample> samples;
    for (std::size_t i = 0; i < answers.size(); ++i) {
        // A scrape does not fail when a database does: a sample says so.
        std::vector<Sample> of_one = answers[i].value.value_or(std::vector<Sample>{});
        of_one.push_back({"stacksaga_coordinator_database_up", {}, answers[i].value ? 1.0 : 0.0});
        for (Sample &sample : of_one) {
            if (shown_.size() > 1)
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

asio::awaitable<HttpResponse> Pages::status(Databases databases) {
    const Question<std::string> question = [](Observer &observer) { return observer.status(); };
    auto answers = co_await ask_all(databases, question);
    if (databases.size() == 1) {
        if (answers.front().error)
            co_return unavailable(*answers.front().error);
        std::string body = std::move(*answers.front().value); // g++ 12 destroys it twice otherwise
        co_return HttpResponse{200, "application/json", std::move(body)};
    }
    std::string list;
    for (std::size_t i = 0; i < answers.size(); ++i)
        list += fmt::format(
            "{}{{\"name\": {}, {}: {}}}", list.empty() ? "" : ", ", quoted_json(databases[i]->name),
            answers[i].value ? "\"status\"" : "\"error\"",
            answers[i].value ? *answers[i].value : quoted_json(explain(*answers[i].error)));
    std::string body = fmt::format("{{\"databases\": [{}]}}", list);
    co_return HttpResponse{200, "application/json", std::move(body)};
}

asio::awaitable<HttpResponse> Pages::timeline(Databases databases, std::string saga_id) {
    if (!is_uuid(saga_id))
        co_return HttpResponse{400, plain, "A saga's id is a uuid: /saga/ID.\n"};
    const Question<std::vector<std::string>> question = [&saga_id](Observer &observer) {
        return observer.timeline(saga_id);
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

} // namespace stacksaga::coordinator
