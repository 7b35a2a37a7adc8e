// HTTP/1.1 as text: parses requests from bytes within limits, and formats answers. Pure: no socket,
// no clock. The library http_parser parses the syntax.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stacksaga::coordinator {

struct HttpRequest {
    std::string method; ///< a handler gets only GET and HEAD
    std::string path;   ///< as the client sent it, without the query
    /// Of the query, decoded; of a name that comes twice, the first.
    std::map<std::string, std::string> parameters{};
};

struct HttpResponse {
    int status = 200;
    std::string content_type = "text/plain; charset=utf-8";
    std::string body;
};

/// A parsed request, before the server checks it.
struct HttpMessage {
    std::string method;
    std::string target;              ///< path and query
    std::optional<std::string> host; ///< the Host header; "" where two differ
    bool keeps_alive = true;         ///< whether the client may send another one
};

/// Reads the requests of one connection. Limits hold for the bytes of a request's target and
/// headers and for the number of headers; a request has no body.
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

/// The path and the parameters of a target; nothing when its query cannot be decoded.
[[nodiscard]] std::optional<HttpRequest> parse_target(const HttpMessage &message);

/// The bytes of the answer; for HEAD without the body.
[[nodiscard]] std::string format_response(const HttpResponse &response, std::string_view method,
                                          bool keeps_alive);

} // namespace stacksaga::coordinator
