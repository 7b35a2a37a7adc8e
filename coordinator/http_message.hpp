// HTTP/1.1 as text: requests are read from bytes as they come, within limits, and answers are
// formatted. Pure: no socket, no clock. The library http_parser reads the syntax.
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
    std::string method; ///< GET or HEAD for a handler; others are answered before it sees them
    std::string path;   ///< as it was sent, without the query
    /// Of the query, decoded; of a name that comes twice, the first.
    std::map<std::string, std::string> parameters{};
};

struct HttpResponse {
    int status = 200;
    std::string content_type = "text/plain; charset=utf-8";
    std::string body;
};

/// A request as it was read, before anything is decided about it.
struct HttpMessage {
    std::string method;
    std::string target;              ///< path and query
    std::optional<std::string> host; ///< the Host header; "" where two differ
    bool keeps_alive = true;         ///< whether the client may send another one
};

/// Reads the requests of one connection. Each request is limited in the bytes of its target and of
/// its headers and in the number of these, and has no body.
class HttpReader {
public:
    HttpReader();
    HttpReader(const HttpReader &) = delete;
    HttpReader &operator=(const HttpReader &) = delete;
    ~HttpReader();

    /// Takes in bytes; a request that they complete is the next of take(). False, and the status of
    /// the answer in refusal(), when the connection cannot go on.
    bool feed(std::string_view bytes);

    /// The oldest request that is complete, or nothing.
    std::optional<HttpMessage> take();

    /// 400 for what is no HTTP, 413, 414 or 431 for what is too large.
    [[nodiscard]] int refusal() const noexcept;

private:
    struct State;
    std::unique_ptr<State> state_;
};

/// Whether a Host header names this daemon, so that no page of another site can ask it under a name
/// of its own that it has pointed here (DNS rebinding). Addresses do, since no name can be pointed
/// to one, and so do localhost and `names`; ports, case and a final dot do not matter.
[[nodiscard]] bool is_own_host(std::string_view host, const std::vector<std::string> &names);

/// The path and the parameters of a target; nothing when its query cannot be decoded.
[[nodiscard]] std::optional<HttpRequest> parse_target(const HttpMessage &message);

/// The answer as it is sent; for HEAD without its body.
[[nodiscard]] std::string format_response(const HttpResponse &response, std::string_view method,
                                          bool keeps_alive);

} // namespace stacksaga::coordinator
