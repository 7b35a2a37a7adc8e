// A small HTTP/1.1 server on the daemon's own io_context. Slow, silent and unreading clients cost
// the others nothing: whoever connects is served, and the client that has waited longest pays.
#pragma once

#include "http_message.hpp"

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// Where to listen, and what it is called. An empty host is none.
struct HttpAddress {
    std::string host;
    std::uint16_t port = 0;
    std::vector<std::string> names{}; ///< of this daemon in requests, besides localhost and `host`
};

/// Lifecycle: made, start() once, stop() once. Handlers run on the io_context's thread, any number
/// at a time; what they throw becomes a 500.
///
/// A request has to be complete, and an answer taken, ten seconds after its turn began. There are
/// at most 512 connections, 256 of one address; one more closes the one that has been at its
/// request or has not taken its answer for longest. So no number of slow clients delays a probe.
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
    class Listener;
    std::shared_ptr<Listener> listener_; ///< connections keep it until they end
};

} // namespace stacksaga::coordinator
