// A small HTTP/1.1 server on the daemon's own io_context. RESTinio does the protocol;
// http_server.cpp alone sees it, since it takes as long to compile as everything else together.
#pragma once

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace stacksaga::coordinator {

struct HttpRequest {
    std::string method; ///< GET or HEAD; others are answered with 405 before a handler sees them
    std::string path;   ///< as it was sent, without the query
    /// Of the query, decoded; of a name that comes twice, the first.
    std::map<std::string, std::string> parameters{};
};

struct HttpResponse {
    int status = 200;
    std::string content_type = "text/plain; charset=utf-8";
    std::string body;
};

/// Where to listen. An empty address is none.
struct HttpAddress {
    std::string host;
    std::uint16_t port = 0;
};

/// Lifecycle: made, start() once, stop() once. Handlers run on the io_context's thread, any number
/// at a time; what they throw becomes a 500. Limits: url, headers and bodies in size, requests in
/// time, connections in number, so that slow or silent clients cost the others nothing.
class HttpServer {
public:
    using Handler = std::function<asio::awaitable<HttpResponse>(HttpRequest)>;

    HttpServer(asio::io_context &io, HttpAddress address, Handler handler);
    HttpServer(const HttpServer &) = delete;
    HttpServer &operator=(const HttpServer &) = delete;
    ~HttpServer();

    /// Listens; throws std::runtime_error naming the address when it cannot.
    void start();
    void stop() noexcept;

private:
    struct Implementation;
    std::unique_ptr<Implementation> implementation_;
};

} // namespace stacksaga::coordinator
