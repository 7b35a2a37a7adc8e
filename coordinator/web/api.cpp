#include "web/api.hpp"

#include "db/views.hpp"

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/redirect_error.hpp>
#include <asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace stacksaga::coordinator {
namespace {

constexpr const char *json = "application/json";
constexpr std::string_view action_prefix = "/api/act/";
/// A line for each queue; unknown values are empty.
constexpr const char *SQL_DEPTHS =
    "SELECT pg_catalog.string_agg(pg_catalog.concat(waiting, E'\\t', running, E'\\t', completed,"
    "           E'\\t', failed, E'\\t', region, ' / ', cluster, ' / ', queue), E'\\n')"
    "  FROM (SELECT * FROM stacksaga.queues"
    "         WHERE pg_catalog.concat(region, cluster, queue) !~ '[[:cntrl:]]'"
    "         ORDER BY region, cluster, queue LIMIT 200) AS q";

constexpr int operators_waiting_max = 64;
constexpr int anonymous_waiting_max = 32;

Connection::NoticeHandler debug_notices(Log &log) {
    return [&log](std::string_view notice) { log.debug("notice", {{"notice", notice}}); };
}

std::optional<double> number_of(std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;
}

/// Takes the text before the separator.
std::string_view take_field(std::string_view &text, char separator) {
    const std::string_view field = text.substr(0, text.find(separator));
    text.remove_prefix(std::min(field.size() + 1, text.size()));
    return field;
}

History::Depths depths_of(std::string_view text) {
    History::Depths depths;
    while (!text.empty()) {
        std::string_view line = take_field(text, '\n');
        History::Depth depth;
        depth.waiting = number_of(take_field(line, '\t')).value_or(0);
        depth.running = number_of(take_field(line, '\t')).value_or(0);
        depth.completed = number_of(take_field(line, '\t'));
        depth.failed = number_of(take_field(line, '\t'));
        depths.emplace(line, depth);
    }
    return depths;
}

/// Sagas' errors name their HTTP status; 42501 is a missing grant, 22... and 23... are arguments.
int status_of(const StoreError &error) {
    const std::string &state = error.sqlstate;
    int status = 0;
    if ((state.starts_with("SG") || state.starts_with("SR")) && state.size() == 5)
        std::from_chars(state.data() + 2, state.data() + 5, status);
    if (status >= 400 && status < 600)
        return status;
    if (state == "42501")
        return 403;
    if (state == "57014" || state == "55P03")
        return 504;
    return state.starts_with("22") || state.starts_with("23") ? 400 : 503;
}

/// PostgreSQL's DETAIL may hold values of rows: it is for operators.
HttpResponse failed(const StoreError &error, bool is_operator) {
    const bool is_down = error.kind == ErrorClass::reconnect;
    return {status_of(error),
            json,
            fmt::format("{{\"error\": {}, \"detail\": {}, \"hint\": {}, \"sqlstate\": {}}}",
                        quoted_json(is_down ? no_answer : error.what()),
                        quoted_json(is_operator && !is_down ? error.detail : ""),
                        quoted_json(is_down ? "" : error.hint),
                        quoted_json(is_down ? "" : error.sqlstate)),
            {}};
}

HttpResponse not_allowed(const char *method) {
    HttpResponse response = json_error(405, fmt::format("only {} is allowed here", method));
    response.headers.emplace_back("Allow", method);
    return response;
}

} // namespace

Api::Database::Database(const asio::any_io_executor &executor, std::string name_of,
                        const std::string &conninfo, StatusReader &status_of_it, Log &log)
    : name(std::move(name_of)),
      views(executor, conninfo, debug_notices(log), operators_waiting_max),
      anonymous_views(executor, conninfo, debug_notices(log), anonymous_waiting_max),
      actions(executor, conninfo,
              [&log](std::string_view notice) {
                  log.info("notice", {{"notice", notice}});
              }),
      status(status_of_it) {}

Api::Api(const asio::any_io_executor &executor, Access &access, Log &log)
    : executor_(executor), access_(access), log_(log) {}

void Api::add_database(std::string name, const std::string &conninfo, StatusReader &status) {
    databases_.emplace_back(executor_, std::move(name), conninfo, status, log_);
}

void Api::start() {
    for (Database &each : databases_)
        asio::co_spawn(executor_, watch(each), asio::detached);
}

void Api::close() noexcept {
    closed_ = true;
    for (asio::steady_timer &timer : timers_)
        timer.cancel();
    for (Database &each : databases_) {
        each.views.close();
        each.anonymous_views.close();
        each.actions.close();
    }
}

asio::awaitable<void> Api::watch(Database &database) {
    asio::steady_timer &timer = timers_.emplace_back(executor_);
    while (!closed_) {
        try {
            co_await read_history(database);
        } catch (const std::exception &error) {
            log_.debug("charts have a gap", {{"on", database.name}, {"error", error.what()}});
        }
        if (closed_)
            co_return;
        asio::error_code stopped;
        timer.expires_after(History::period);
        co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, stopped));
    }
}

asio::awaitable<void> Api::read_history(Database &database) {
    const std::vector<Sample> samples = co_await database.status.metrics();
    std::optional<std::string> lines;
    try {
        lines = co_await database.views.read(SQL_DEPTHS, no_parameters);
    } catch (const StoreError &error) {
        // The other charts go on.
        log_.debug("depths are unknown", {{"on", database.name}, {"error", error.what()}});
    }
    const auto now = std::chrono::time_point_cast<Duration>(std::chrono::system_clock::now());
    database.history.add(samples, depths_of(lines.value_or("")), now);
}

Api::Database *Api::database_of(const HttpRequest &request) {
    const std::string wanted = request.parameter("database");
    for (Database &each : databases_)
        if (wanted.empty() || each.name == wanted)
            return &each;
    return nullptr;
}

asio::awaitable<HttpResponse> Api::answer(HttpRequest request) {
    const std::string &path = request.path;
    const bool is_post = request.method == "POST";
    if (path == "/api/login" || path == "/api/logout" || path.starts_with(action_prefix)) {
        if (!is_post)
            co_return not_allowed("POST");
    } else if (is_post) {
        co_return not_allowed("GET, HEAD");
    }
    if (path == "/api/session")
        co_return access_.describe(request);
    if (path == "/api/login") {
        auto answer = access_.login(request); // named: g++ 12 destroys it twice otherwise
        co_return co_await std::move(answer);
    }
    if (path == "/api/logout")
        co_return access_.logout(request);
    Database *database = database_of(request);
    if (!database)
        co_return json_error(404, "this daemon serves no database of that name");
    if (path == "/api/history")
        co_return HttpResponse{200, json, database->history.json(), {}};
    HttpResponse response;
    try {
        auto answer =
            path.starts_with(action_prefix) ? act(*database, request) : view(*database, request);
        response = co_await std::move(answer);
    } catch (const StoreError &error) {
        response = failed(error, !access_.viewer(request).user.empty());
    }
    co_return response;
}

asio::awaitable<HttpResponse> Api::view(Database &database, const HttpRequest &request) {
    const auto found = std::ranges::find_if(
        views(), [&](const View &candidate) { return candidate.path == request.path; });
    if (found == views().end())
        co_return json_error(404, "there is no such view");
    const Viewer viewer = access_.viewer(request);
    if (!request.parameter("attributes").empty() && !viewer.sees_payloads)
        co_return json_error(403, "attributes are hidden", "Log in to search by attributes.");
    if (found->is_for_operators && !viewer.sees_payloads)
        co_return json_error(403, "details of errors are hidden", "Log in as an operator.");
    Parameters parameters;
    for (const std::string_view name : found->parameters) {
        const std::string value = request.parameter(std::string(name));
        if (name == "payloads")
            parameters.emplace_back(viewer.sees_payloads ? "true" : "false");
        else
            parameters.push_back(value.empty() ? std::nullopt : std::optional(value));
    }
    ViewReader &reader = viewer.user.empty() ? database.anonymous_views : database.views;
    auto body = co_await reader.read(found->sql, parameters);
    if (!body)
        co_return json_error(404, found->missing);
    co_return HttpResponse{200, json, std::move(*body), {}};
}

asio::awaitable<HttpResponse> Api::act(Database &database, const HttpRequest &request) {
    if (auto objection = access_.objection(request))
        co_return std::move(*objection);
    const Action *action = find_action(std::string_view(request.path).substr(action_prefix.size()));
    if (!action || !action->is_for_support())
        co_return json_error(404, "there is no such action");
    const bool is_dry_run = request.parameter("dry_run") != "no";
    const std::string user = access_.viewer(request).user;
    std::string outcome = "done";
    std::string rows;
    std::optional<StoreError> failure;
    try {
        rows = co_await database.actions.run(*action, request.body, is_dry_run, user);
    } catch (const StoreError &error) {
        outcome = error.what();
        failure = error;
    }
    log_.info(
        is_dry_run ? "action tried" : "action",
        {{"action", action->name}, {"user", user}, {"on", database.name}, {"outcome", outcome}});
    if (!is_dry_run) {
        database.views.forget();
        database.anonymous_views.forget();
    }
    if (failure)
        co_return failed(*failure, true);
    co_return HttpResponse{
        200, json, fmt::format("{{\"dry_run\": {}, \"rows\": {}}}", is_dry_run, rows), {}};
}

} // namespace stacksaga::coordinator
