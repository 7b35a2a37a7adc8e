#include "web/access.hpp"

#include "web/operators.hpp"

#include <asio/co_spawn.hpp>
#include <asio/redirect_error.hpp>
#include <asio/use_awaitable.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>

namespace stacksaga::coordinator {
namespace {

constexpr const char *json = "application/json";
constexpr const char *cookie_name = "stacksaga_session";
constexpr std::size_t password_bytes_max = 512;
/// Maximum number of passwords that wait for their check; further logins are answered with 429. The
/// last places are reserved for users who logged in from their address before.
constexpr int checking_max = 32;
constexpr int checking_reserve = 8;

SteadyTime now() {
    return std::chrono::steady_clock::now();
}

/// Whether a proxy terminates TLS, by the page's own origin or a header of the proxy. A forged
/// header harms only the session of its sender.
bool is_behind_tls(const HttpRequest &request) {
    const auto says = [&request](const char *name, std::string_view word) {
        std::string text(request.header(name));
        std::ranges::transform(text, text.begin(),
                               [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        const auto at = text.find(word);
        return at != std::string::npos &&
               (at + word.size() == text.size() ||
                std::isalnum(static_cast<unsigned char>(text[at + word.size()])) == 0);
    };
    return says("origin", "https") || says("x-forwarded-proto", "https") ||
           says("x-forwarded-protocol", "https") || says("x-forwarded-scheme", "https") ||
           says("x-url-scheme", "https") || says("forwarded", "proto=https") ||
           says("forwarded", "proto=\"https") || says("x-forwarded-ssl", "on") ||
           says("front-end-https", "on");
}

/// The address by which limits count: for IPv6 the network, since a client has all of its
/// addresses.
std::string counted_address(const asio::ip::address &address) {
    if (address.is_v4())
        return address.to_string();
    auto bytes = address.to_v6().to_bytes();
    if (address.to_v6().is_v4_mapped())
        return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
    std::fill(bytes.begin() + bytes.size() / 2, bytes.end(), 0);
    return asio::ip::address_v6(bytes).to_string() + "/64";
}

std::string session_cookie(const HttpRequest &request, std::string_view value,
                           std::string_view age) {
    return fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict{}{}", cookie_name, value, age,
                       is_behind_tls(request) ? "; Secure" : "");
}

std::optional<std::string> session_id(const HttpRequest &request) {
    return cookie(request.header("cookie"), cookie_name);
}

/// User and password of a login's form.
std::optional<std::pair<std::string, std::string>> credentials_of(const HttpRequest &request) {
    const auto form = parse_form(request.body);
    if (!request.header("content-type").starts_with("application/x-www-form-urlencoded") || !form ||
        !form->contains("user") || !form->contains("password"))
        return std::nullopt;
    return std::pair(form->at("user"), form->at("password"));
}

HttpResponse refused_login(const LoginLimits::Verdict &verdict) {
    const auto seconds =
        verdict.is_admitted ? 1 : std::chrono::ceil<std::chrono::seconds>(verdict.wait).count();
    HttpResponse refused = json_error(
        429, verdict.is_guessing ? "too many attempts failed" : "too many log in at once",
        fmt::format("Try again in {} s.", seconds));
    refused.headers.emplace_back("Retry-After", std::to_string(seconds));
    return refused;
}

} // namespace

HttpResponse json_error(int status, std::string_view error, std::string_view hint) {
    return {status,
            json,
            fmt::format("{{\"error\": {}, \"hint\": {}}}", quoted_json(error), quoted_json(hint)),
            {}};
}

Access::Access(const asio::any_io_executor &executor, AccessSettings settings, Log &log)
    : executor_(executor), settings_(std::move(settings)), log_(log), password_thread_(1) {
    if (!settings_.operators_file.empty())
        operators_ = read_operators(settings_.operators_file);
}

void Access::close() noexcept {
    for (asio::steady_timer &each : waiting_)
        each.cancel();
    password_thread_.stop();
}

asio::awaitable<void> Access::wait(Duration duration) {
    const auto timer = waiting_.emplace(waiting_.end(), executor_, duration);
    asio::error_code stopped;
    co_await timer->async_wait(asio::redirect_error(asio::use_awaitable, stopped));
    waiting_.erase(timer);
}

void Access::reload() {
    if (settings_.operators_file.empty())
        return;
    try {
        Operators read = read_operators(settings_.operators_file);
        for (const auto &[name, hash] : operators_)
            if (const auto found = read.find(name); found == read.end() || found->second != hash)
                sessions_.end_of_user(name);
        operators_ = std::move(read);
        log_.info("operators read", {{"operators", static_cast<std::int64_t>(operators_.size())}});
    } catch (const OperatorsError &error) {
        log_.error("reload failed, the operators are unchanged", {{"error", error.what()}});
    }
}

bool Access::is_from_proxy(const HttpRequest &request) const {
    if (request.peer.is_local_socket)
        return true;
    for (const Network &network : settings_.trusted_proxies)
        if (network.contains(request.peer.address))
            return true;
    return false;
}

std::string Access::named_by_proxy(const HttpRequest &request) const {
    if (settings_.operator_header.empty() || !is_from_proxy(request))
        return {};
    const std::string name(request.header(settings_.operator_header));
    return is_operator_name(name) ? name : std::string();
}

/// A trusted proxy adds its client's address at the end of X-Forwarded-For.
std::string Access::client_address(const HttpRequest &request) const {
    if (is_from_proxy(request)) {
        std::string_view list = request.header("x-forwarded-for");
        list.remove_prefix(list.rfind(',') == std::string_view::npos ? 0 : list.rfind(',') + 1);
        list.remove_prefix(std::min(list.find_first_not_of(' '), list.size()));
        asio::error_code not_an_address;
        const auto address = asio::ip::make_address(std::string(list), not_an_address);
        if (!not_an_address)
            return counted_address(address);
    }
    return request.peer.is_local_socket ? "local" : counted_address(request.peer.address);
}

const Session *Access::session_of(const HttpRequest &request) {
    const auto id = session_id(request);
    // A page that updates itself marks its requests: perhaps no person looks at it.
    const bool is_use = request.header("x-stacksaga-poll").empty();
    const Session *session = id ? sessions_.find(*id, now(), is_use) : nullptr;
    const bool is_named = !settings_.operator_header.empty();
    return session && is_named && session->user != named_by_proxy(request) ? nullptr : session;
}

Viewer Access::viewer(const HttpRequest &request) {
    Viewer viewer;
    viewer.user = named_by_proxy(request);
    if (const Session *session = session_of(request)) {
        viewer.user = session->user;
        viewer.csrf_token = session->csrf_token;
    }
    viewer.sees_payloads = !viewer.user.empty() && !settings_.hide_payloads;
    return viewer;
}

HttpResponse Access::describe(const HttpRequest &request) {
    HttpResponse response{200, json, {}, {}};
    Viewer who = viewer(request);
    if (who.csrf_token.empty() && !who.user.empty()) {
        const Session &session = sessions_.begin(who.user, now());
        who.csrf_token = session.csrf_token;
        response.headers.emplace_back("Set-Cookie", session_cookie(request, session.id, ""));
    }
    response.body =
        fmt::format("{{\"user\": {}, \"csrf_token\": {}, \"actions\": \"{}\", "
                    "\"sees_payloads\": {}, \"hides_payloads\": {}, \"version\": {}}}",
                    who.user.empty() ? "null" : quoted_json(who.user),
                    who.csrf_token.empty() ? "null" : quoted_json(who.csrf_token),
                    !settings_.operators_file.empty()    ? "password"
                    : !settings_.operator_header.empty() ? "proxy"
                                                         : "off",
                    who.sees_payloads, settings_.hide_payloads, quoted_json(STACKSAGA_VERSION));
    return response;
}

std::optional<HttpResponse> Access::origin_objection(const HttpRequest &request) const {
    const std::string_view origin = request.header("origin");
    const std::string_view site = request.header("sec-fetch-site");
    if (is_own_origin(origin, request.header("host"), settings_.names) &&
        (site.empty() || site == "same-origin"))
        return std::nullopt;
    return json_error(403, fmt::format("the request comes from \"{}\", not from this page", origin),
                      "The Origin header must have the host and port of the Host header, or be "
                      "one that --allowed-host names.");
}

asio::awaitable<bool> Access::check_password(std::string password, std::string hash) {
    struct Place {
        explicit Place(int &taken) : taken_(++taken) {}
        Place(const Place &) = delete;
        Place &operator=(const Place &) = delete;
        ~Place() { --taken_; }
        int &taken_;
    };
    const Place place(checking_);
    // A coroutine on the other thread; this one resumes in its own thread when that has ended.
    auto check = [](std::string p, std::string h) -> asio::awaitable<bool> {
        co_return is_password(p, h);
    };
    auto on_other_thread = asio::co_spawn(
        password_thread_, check(std::move(password), std::move(hash)), asio::use_awaitable);
    co_return co_await std::move(on_other_thread);
}

asio::awaitable<HttpResponse> Access::login(HttpRequest request) {
    if (settings_.operators_file.empty())
        co_return json_error(404, "logins are disabled",
                             "The daemon was started without --operators-file.");
    if (auto objection = origin_objection(request))
        co_return std::move(*objection);
    const auto given = credentials_of(request);
    if (!given)
        co_return json_error(400, "expected a form with user and password");
    const auto &[user, password] = *given;
    if (!is_operator_name(user) || password.size() > password_bytes_max)
        co_return json_error(401, "user or password is wrong");
    const std::string address = client_address(request);
    const LoginLimits::Verdict verdict = limits_.admit(user, address, now());
    if (verdict.is_admitted && verdict.wait > Duration::zero())
        co_await wait(verdict.wait);
    const int places = verdict.has_reserve ? checking_max : checking_max - checking_reserve;
    if (!verdict.is_admitted || checking_ >= places) {
        log_.warn("login refused", {{"user", user}, {"address", address}});
        co_return refused_login(verdict);
    }
    const bool is_known = operators_.contains(user);
    const std::string hash = hash_to_check(operators_, user);
    const bool is_right = co_await check_password(password, hash);
    // The file may have been read again during the check.
    const auto still = operators_.find(user);
    if (!is_right || !is_known || still == operators_.end() || still->second != hash) {
        log_.warn("login failed", {{"user", user}, {"address", address}});
        co_return json_error(401, "user or password is wrong");
    }
    limits_.succeeded(user, address, verdict, now());
    log_.info("login", {{"user", user}, {"address", address}});
    co_return begin_session(request, user);
}

HttpResponse Access::begin_session(const HttpRequest &request, const std::string &user) {
    if (const auto old = session_id(request))
        sessions_.end(*old);
    const Session &session = sessions_.begin(user, now());
    HttpResponse response{200,
                          json,
                          fmt::format("{{\"user\": {}, \"csrf_token\": {}}}", quoted_json(user),
                                      quoted_json(session.csrf_token)),
                          {}};
    response.headers.emplace_back("Set-Cookie", session_cookie(request, session.id, ""));
    return response;
}

HttpResponse Access::logout(const HttpRequest &request) {
    if (auto refused = objection(request))
        return *refused;
    if (const auto id = session_id(request))
        sessions_.end(*id);
    HttpResponse response{200, json, "{}", {}};
    response.headers.emplace_back("Set-Cookie", session_cookie(request, "", "; Max-Age=0"));
    return response;
}

std::optional<HttpResponse> Access::objection(const HttpRequest &request) {
    if (settings_.operators_file.empty() && settings_.operator_header.empty())
        return json_error(403, "this page is read-only",
                          "Start the daemon with --operators-file or --operator-header.");
    if (auto foreign = origin_objection(request))
        return foreign;
    if (request.header("content-type") != json)
        return json_error(415, "an action is application/json");
    const Viewer who = viewer(request);
    if (who.csrf_token.empty())
        return json_error(401, "nobody is logged in, or the session has ended", "Log in again.");
    if (!equal_secrets(request.header("x-csrf-token"), who.csrf_token))
        return json_error(403, "the token of this page is missing or wrong",
                          "Reload the page, and try again.");
    return std::nullopt;
}

} // namespace stacksaga::coordinator
