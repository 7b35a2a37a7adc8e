// HTTP/1.1 as text: parses requests from bytes within limits, and formats answers. Pure: no socket,
// no clock. The library http_parser parses the syntax.
#pragma once

#include <asio/ip/address.hpp>

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stacksaga::coordinator {

/// Names and values as the query of a target or a form has them, decoded; of a name that comes
/// twice, the first.
using HttpParameters = std::map<std::string, std::string>;

/// Headers by their names in lower case. A header that comes twice with different values is "",
/// which no check accepts.
using HttpHeaders = std::map<std::string, std::string>;

/// The sender of a request.
struct HttpPeer {
    bool is_local_socket = false; ///< a Unix socket, which has no address
    asio::ip::address address;
};

struct HttpRequest {
    std::string method; ///< GET, HEAD or POST
    std::string path;   ///< as the client sent it, without the query
    HttpParameters parameters{};
    HttpHeaders headers{};
    std::string body{}; ///< of a POST
    HttpPeer peer{};

    /// The value of a header, named in lower case; empty without it.
    [[nodiscard]] std::string_view header(const std::string &name) const;
    /// The value of a parameter; empty without it.
    [[nodiscard]] std::string parameter(const std::string &name) const;
};

struct HttpResponse {
    int status = 200;
    std::string content_type = "text/plain; charset=utf-8";
    std::string body;
    /// More headers. Neither may hold a line break.
    std::vector<std::pair<std::string, std::string>> headers{};
};

/// A parsed request, before the server checks it.
struct HttpMessage {
    std::string method;
    std::string target;              ///< path and query
    std::optional<std::string> host; ///< the Host header; "" where two differ
    bool keeps_alive = true;         ///< whether the client may send another one
    HttpHeaders headers{};
    std::string body{};
};

/// Reads the requests of one connection. Limits hold for the bytes of a request's target, headers
/// and body, and for the number of headers; only a POST has a body.
class HttpReader {
public:
    HttpReader();
    HttpReader(const HttpReader &) = delete;
    HttpReader &operator=(const HttpReader &) = delete;
    ~HttpReader();

    /// Adds bytes; take() then returns the requests that they complete. Returns false when the
    /// connection must end; refusal() then has the status of the answer.
    bool feed(std::string_view bytes);

    /// The oldest request that is complete, or nothing.
    std::optional<HttpMessage> take();

    /// 400 for bytes that are not HTTP; 413, 414 or 431 for a request that is too large.
    [[nodiscard]] int refusal() const noexcept;

private:
    struct State;
    std::unique_ptr<State> state_;
};

/// Whether a Host header names this daemon. This keeps out pages of other sites that point their
/// own name at this daemon (DNS rebinding). IP addresses, localhost and `names` are accepted;
/// ports, case and a final dot do not matter.
[[nodiscard]] bool is_own_host(std::string_view host, const std::vector<std::string> &names);

/// Whether a request comes from a page of this daemon, by its Origin header: its host and port are
/// those of the Host header, or it is one of `names` (with its port, unless that is the scheme's).
[[nodiscard]] bool is_own_origin(std::string_view origin, std::string_view host,
                                 const std::vector<std::string> &names);

/// The path, the parameters, headers and body of a message; nothing when its query cannot be
/// decoded.
[[nodiscard]] std::optional<HttpRequest> parse_target(const HttpMessage &message);

/// The parameters of a query or of a form (application/x-www-form-urlencoded); nothing when they
/// cannot be decoded.
[[nodiscard]] std::optional<HttpParameters> parse_form(std::string_view text);

/// The value of a cookie in a Cookie header; nothing without it.
[[nodiscard]] std::optional<std::string> cookie(std::string_view header, std::string_view name);

/// The bytes of the answer; for HEAD without the body.
[[nodiscard]] std::string format_response(const HttpResponse &response, std::string_view method,
                                          bool keeps_alive);

} // namespace stacksaga::coordinator
