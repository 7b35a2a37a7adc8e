// Access control: operators log in with a password or are named by a trusted proxy in a header;
// every other viewer is anonymous and only reads.
#pragma once

#include "base/config.hpp"
#include "base/log.hpp"
#include "http/message.hpp"
#include "web/login_limits.hpp"
#include "web/operators.hpp"

#include <asio/any_io_executor.hpp>
#include <asio/awaitable.hpp>
#include <asio/steady_timer.hpp>
#include <asio/thread_pool.hpp>

#include <list>
#include <optional>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// The sender of a request.
struct Viewer {
    std::string user;       ///< empty: anonymous
    std::string csrf_token; ///< an action must repeat it; empty: this viewer cannot act
    bool sees_payloads = false;
};

/// Lifecycle: constructed (throws OperatorsError), used by any number of coroutines on the
/// executor's thread, close() at the end. Passwords are checked on a thread of their own, one at a
/// time: that takes a tenth of a second, which the loop has not.
class Access {
public:
    Access(const asio::any_io_executor &executor, AccessSettings settings, Log &log);

    /// Reads the operators again; keeps those it has when the file is wrong. Ends the sessions of
    /// operators who were removed or have another password.
    void reload();

    [[nodiscard]] Viewer viewer(const HttpRequest &request);

    /// Describes the viewer to the page, as JSON. Begins a session where a proxy has named the
    /// user.
    HttpResponse describe(const HttpRequest &request);

    /// Checks name and password of a form, and begins a session.
    asio::awaitable<HttpResponse> login(HttpRequest request);

    HttpResponse logout(const HttpRequest &request);

    /// The reason why this request may not act; nothing when it may. Checks the Origin, the
    /// session, and the token, which a form of another site cannot send.
    [[nodiscard]] std::optional<HttpResponse> objection(const HttpRequest &request);

    void close() noexcept;

private:
    [[nodiscard]] bool is_from_proxy(const HttpRequest &request) const;
    [[nodiscard]] std::string named_by_proxy(const HttpRequest &request) const;
    [[nodiscard]] std::string client_address(const HttpRequest &request) const;
    [[nodiscard]] const Session *session_of(const HttpRequest &request);
    [[nodiscard]] std::optional<HttpResponse> origin_objection(const HttpRequest &request) const;
    asio::awaitable<bool> check_password(std::string password, std::string hash);
    asio::awaitable<void> wait(Duration duration);
    HttpResponse begin_session(const HttpRequest &request, const std::string &user);

    asio::any_io_executor executor_;
    AccessSettings settings_;
    Log &log_;
    Operators operators_;
    Sessions sessions_;
    LoginLimits limits_;
    std::list<asio::steady_timer> waiting_; ///< for their turn to have a password checked
    int checking_ = 0;
    asio::thread_pool password_thread_;
};

/// An error for the page: {"error": ..., "hint": ...}.
[[nodiscard]] HttpResponse json_error(int status, std::string_view error,
                                      std::string_view hint = {});

} // namespace stacksaga::coordinator
