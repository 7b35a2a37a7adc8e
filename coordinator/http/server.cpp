#include "http/server.hpp"

#include <asio/buffer.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/generic/stream_protocol.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/redirect_error.hpp>
#include <asio/steady_timer.hpp>
#include <asio/system_error.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <list>
#include <optional>
#include <stdexcept>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace stacksaga::coordinator {
namespace {

using asio::ip::tcp;
using Local = asio::local::stream_protocol;
using Stream = asio::generic::stream_protocol;
using Time = std::chrono::steady_clock::time_point;

constexpr std::size_t connections_max = 512;
constexpr std::size_t connections_of_client_max = 256;
constexpr std::chrono::seconds turn_max{10};
constexpr std::chrono::seconds sweep_interval{1};
/// The pause after an accept failed because this process has no file descriptor left.
constexpr std::chrono::milliseconds accept_pause{100};

HttpResponse plain(int status, std::string text) {
    return {status, "text/plain; charset=utf-8", std::move(text)};
}

HttpResponse refused(int status) {
    return plain(status, status == 400 ? "The request is not HTTP/1.1 with a Host header.\n"
                                       : "The request is too large.\n");
}

HttpResponse not_allowed() {
    HttpResponse response = plain(405, "Only GET, HEAD and POST are allowed.\n");
    response.headers.emplace_back("Allow", "GET, HEAD, POST");
    return response;
}

HttpResponse foreign_host(std::string_view host) {
    return plain(421, fmt::format("This daemon does not serve the host name \"{}\". Use its "
                                  "address, or start it with --allowed-host and this name.\n",
                                  host));
}

/// The answer to a failed handler: a cancelled one means that the daemon stops, any other is a
/// defect.
HttpResponse failed(const std::exception_ptr &failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const asio::system_error &error) {
        if (error.code() == asio::error::operation_aborted)
            return plain(503, "The daemon is stopping.\n");
    } catch (const std::exception &) {
        // Answered below.
    }
    return plain(500, "Internal error.\n");
}

/// Which file a name stands for, without following a link.
struct FileIdentity {
    dev_t device;
    ino_t number;
    bool is_socket;
    bool operator==(const FileIdentity &) const = default;
};

std::optional<FileIdentity> file_at(const std::string &path) {
    struct stat about {};
    if (::lstat(path.c_str(), &about) != 0)
        return std::nullopt;
    return FileIdentity{about.st_dev, about.st_ino, S_ISSOCK(about.st_mode)};
}

/// One client. It has the turn while it sends a request or reads an answer; the daemon has it while
/// a handler runs.
struct Client {
    Client(Stream::socket with, HttpPeer from) : socket(std::move(with)), peer(std::move(from)) {}

    void begin_turn() {
        is_handled = false;
        turn_began = std::chrono::steady_clock::now();
    }

    void close() noexcept {
        asio::error_code ignored; // the socket is closed in any case
        socket.close(ignored);
    }

    Stream::socket socket;
    HttpPeer peer;
    Time turn_began = std::chrono::steady_clock::now();
    bool is_handled = false;
    HttpReader reader;
};

} // namespace

class HttpServer::Listener : public std::enable_shared_from_this<HttpServer::Listener> {
public:
    Listener(asio::io_context &io, HttpAddress address, Handler handler)
        : io_(io), acceptor_(io), local_acceptor_(io), pause_(io), sweep_timer_(io),
          address_(std::move(address)), handler_(std::move(handler)) {
        if (!address_.host.empty())
            address_.names.push_back(address_.host);
    }

    void open() {
        try {
            if (address_.path.empty())
                open_port();
            else
                open_local_socket();
        } catch (const asio::system_error &error) {
            throw std::runtime_error(
                fmt::format("cannot listen on {}: {}", address_.text(), error.what()));
        }
    }

    void close() noexcept {
        asio::error_code ignored;
        acceptor_.close(ignored);
        if (local_acceptor_.is_open()) {
            local_acceptor_.close(ignored);
            if (file_at(address_.path) == socket_file_)
                ::unlink(address_.path.c_str());
        }
        pause_.cancel();
        sweep_timer_.cancel();
        for (Client &client : clients_)
            client.close();
    }

private:
    using Clients = std::list<Client>;

    void open_port() {
        tcp::resolver resolver(io_);
        const auto found = resolver.resolve(address_.host, std::to_string(address_.port));
        const tcp::endpoint endpoint = found.begin()->endpoint();
        acceptor_.open(endpoint.protocol());
        acceptor_.set_option(tcp::acceptor::reuse_address(true));
        acceptor_.bind(endpoint);
        acceptor_.listen();
        asio::co_spawn(io_, accept(shared_from_this(), acceptor_), asio::detached);
    }

    /// Only the daemon's user and group may connect. The socket that an earlier daemon left behind
    /// is removed, unless somebody answers there; any other file is left alone.
    void open_local_socket() {
        const Local::endpoint endpoint(address_.path);
        const auto there = file_at(address_.path);
        if (there && !there->is_socket)
            throw std::runtime_error(
                fmt::format("cannot listen on {}: there is a file of that name, which is no socket",
                            address_.text()));
        asio::error_code refused;
        Local::socket probe(io_);
        probe.connect(endpoint, refused);
        if (refused == asio::error::connection_refused)
            ::unlink(address_.path.c_str());
        local_acceptor_.open(endpoint.protocol());
        local_acceptor_.bind(endpoint);
        if (::chmod(address_.path.c_str(), S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP) != 0)
            throw asio::system_error(asio::error_code(errno, asio::error::get_system_category()));
        local_acceptor_.listen();
        socket_file_ = file_at(address_.path);
        asio::co_spawn(io_, accept(shared_from_this(), local_acceptor_), asio::detached);
    }

    /// `self` keeps the listener alive until the coroutine ends, here and below.
    template <class Acceptor>
    asio::awaitable<void> accept([[maybe_unused]] std::shared_ptr<Listener> self,
                                 Acceptor &acceptor) {
        while (acceptor.is_open()) {
            asio::error_code error;
            auto socket =
                co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
            if (!error) {
                admit(std::move(socket));
            } else if (acceptor.is_open()) {
                pause_.expires_after(accept_pause);
                co_await pause_.async_wait(asio::redirect_error(asio::use_awaitable, error));
            }
        }
    }

    void admit(Local::socket socket) {
        admit(Stream::socket(std::move(socket)), {.is_local_socket = true, .address = {}});
    }

    void admit(tcp::socket socket) {
        asio::error_code disconnected;
        const auto address = socket.remote_endpoint(disconnected).address();
        // Without it, each of several consecutive answers would wait for the client's ACK.
        if (!disconnected)
            socket.set_option(tcp::no_delay(true), disconnected);
        if (!disconnected)
            admit(Stream::socket(std::move(socket)),
                  {.is_local_socket = false, .address = address});
    }

    void admit(Stream::socket socket, const HttpPeer &peer) {
        const auto is_neighbour = [&](const Client &client) {
            return !peer.is_local_socket && client.peer.address == peer.address;
        };
        if (std::ranges::count_if(clients_, is_neighbour) >=
            std::ptrdiff_t{connections_of_client_max})
            evict(is_neighbour);
        else if (clients_.size() >= connections_max)
            evict([](const Client &) { return true; });
        const auto client = clients_.emplace(clients_.end(), std::move(socket), peer);
        asio::co_spawn(io_, serve(shared_from_this(), client), asio::detached);
        if (!std::exchange(is_sweeping_, true))
            asio::co_spawn(io_, sweep(shared_from_this()), asio::detached);
    }

    /// Closes clients whose turn has expired, as long as there are clients.
    asio::awaitable<void> sweep(std::shared_ptr<Listener> self) {
        while (!self->clients_.empty()) {
            sweep_timer_.expires_after(sweep_interval);
            asio::error_code stopped;
            co_await sweep_timer_.async_wait(asio::redirect_error(asio::use_awaitable, stopped));
            const Time overdue = std::chrono::steady_clock::now() - turn_max;
            for (Client &client : clients_)
                if (stopped || (!client.is_handled && client.turn_began <= overdue))
                    client.close();
        }
        is_sweeping_ = false;
    }

    /// Closes one of the chosen clients: the one whose turn has lasted longest, or, if all wait for
    /// the daemon, the one that has waited longest.
    template <class Meant> void evict(const Meant &is_meant) {
        Client *victim = nullptr;
        for (Client &client : clients_) {
            if (!is_meant(client) || !client.socket.is_open())
                continue;
            if (!victim || std::pair(client.is_handled, client.turn_began) <
                               std::pair(victim->is_handled, victim->turn_began))
                victim = &client;
        }
        if (victim)
            victim->close();
    }

    asio::awaitable<void> serve(std::shared_ptr<Listener> self, Clients::iterator client) {
        try {
            while (co_await answer_next(*client)) {
            }
        } catch (const std::exception &) {
            // The client disconnected or was closed, or memory ran out.
        }
        self->clients_.erase(client);
    }

    /// Reads a request and answers it; false when the connection must end.
    asio::awaitable<bool> answer_next(Client &client) {
        std::optional<HttpMessage> message = client.reader.take();
        std::array<char, 4096> bytes{};
        while (!message && client.reader.refusal() == 0) {
            const std::size_t count =
                co_await client.socket.async_read_some(asio::buffer(bytes), asio::use_awaitable);
            client.reader.feed({bytes.data(), count});
            message = client.reader.take();
        }
        client.is_handled = true;
        const bool keeps_alive = message && message->keeps_alive;
        HttpResponse response = message ? HttpResponse{} : refused(client.reader.refusal());
        if (message)
            response = co_await handle(*message, client.peer);
        const std::string text =
            format_response(response, message ? message->method : "GET", keeps_alive);
        client.begin_turn();
        co_await asio::async_write(client.socket, asio::buffer(text), asio::use_awaitable);
        client.begin_turn();
        co_return keeps_alive;
    }

    asio::awaitable<HttpResponse> handle(const HttpMessage &message, const HttpPeer &peer) {
        if (message.host && !is_own_host(*message.host, address_.names))
            co_return foreign_host(*message.host);
        if (message.method != "GET" && message.method != "HEAD" && message.method != "POST")
            co_return not_allowed();
        std::optional<HttpRequest> request = parse_target(message);
        if (!request)
            co_return plain(400, "The query is not valid.\n");
        request->peer = peer;
        std::exception_ptr failure;
        HttpResponse response;
        try {
            auto answer =
                handler_(std::move(*request)); // named: g++ 12 destroys it twice otherwise
            response = co_await std::move(answer);
        } catch (...) {
            failure = std::current_exception();
        }
        if (failure)
            response = failed(failure);
        co_return response;
    }

    asio::io_context &io_;
    tcp::acceptor acceptor_;
    Local::acceptor local_acceptor_;
    asio::steady_timer pause_;
    asio::steady_timer sweep_timer_;
    bool is_sweeping_ = false;
    HttpAddress address_;
    std::optional<FileIdentity> socket_file_; ///< that this listener made
    Handler handler_;
    Clients clients_;
};

HttpServer::HttpServer(asio::io_context &io, HttpAddress address, Handler handler)
    : listener_(std::make_shared<Listener>(io, std::move(address), std::move(handler))) {}

HttpServer::~HttpServer() = default;

void HttpServer::start() {
    listener_->open();
}

void HttpServer::stop() noexcept {
    listener_->close();
}

} // namespace stacksaga::coordinator
