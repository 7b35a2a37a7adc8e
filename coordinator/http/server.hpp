// A small HTTP/1.1 server on the daemon's own io_context. Slow, idle and unreading clients never
// delay the others: the server accepts each new client and, at its limit, closes the client that
// has been slow for longest.
#pragma once

#include "base/config.hpp"
#include "http/message.hpp"

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>

#include <functional>
#include <memory>

namespace stacksaga::coordinator {

/// Lifecycle: constructed, start() once, stop() once. Handlers run on the io_context's thread, any
/// number concurrently; an exception of a handler becomes a 500.
///
/// A client has ten seconds to send a request and ten to read the answer. The server keeps at most
/// 512 connections, 256 of one address; one more closes the connection that has spent longest on
/// sending its request or reading its answer. So slow clients, in any number, never delay a probe.
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
