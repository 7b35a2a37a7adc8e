#include "http_server.hpp"

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/execution_context.hpp>
#include <fmt/format.h>
#include <restinio/all.hpp>

#include <chrono>
#include <stdexcept>
#include <utility>
#include <vector>

namespace stacksaga::coordinator {
namespace {

constexpr std::size_t connections_max = 512;
constexpr std::size_t url_bytes_max = 2048;
constexpr std::size_t header_bytes_max = 8192;
constexpr std::size_t headers_max = 64;
constexpr std::chrono::seconds request_time_max{10};

struct Traits
    : restinio::single_thread_traits_t<restinio::asio_timer_manager_t, restinio::null_logger_t> {
    static constexpr bool use_connection_count_limiter = true;
};
using Server = restinio::http_server_t<Traits>;

/// Part of the io_context, whose end closes what connections are left. They count themselves off at
/// the server then, so it is kept for so long.
class Keeper : public asio::execution_context::service {
public:
    using key_type = Keeper;
    static inline asio::execution_context::id id;

    explicit Keeper(asio::execution_context &context) : service(context) {}
    void keep(std::unique_ptr<Server> server) { servers_.push_back(std::move(server)); }

private:
    void shutdown() noexcept override {}

    std::vector<std::unique_ptr<Server>> servers_;
};

/// Nothing on a page of ours comes from elsewhere, and nobody frames it.
constexpr const char *content_security_policy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

restinio::http_status_line_t status_line(int status) {
    switch (status) {
    case 200:
        return restinio::status_ok();
    case 400:
        return restinio::status_bad_request();
    case 404:
        return restinio::status_not_found();
    case 405:
        return restinio::status_method_not_allowed();
    case 503:
        return restinio::status_service_unavailable();
    default:
        return restinio::status_internal_server_error();
    }
}

/// What is cancelled was so because the daemon ends; anything else is a defect.
HttpResponse failed(const std::exception_ptr &failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const asio::system_error &error) {
        if (error.code() == asio::error::operation_aborted)
            return {503, "text/plain; charset=utf-8", "The daemon ends.\n"};
    } catch (const std::exception &) {
        // Answered below.
    }
    return {500, "text/plain; charset=utf-8", "Internal error.\n"};
}

void answer(const restinio::request_handle_t &request, const HttpResponse &response) {
    auto builder = request->create_response(status_line(response.status));
    builder.append_header(restinio::http_field::content_type, response.content_type)
        .append_header(restinio::http_field::cache_control, "no-store")
        .append_header("X-Content-Type-Options", "nosniff")
        .append_header("Referrer-Policy", "no-referrer")
        .append_header("Content-Security-Policy", content_security_policy);
    if (response.status == 405)
        builder.append_header(restinio::http_field::allow, "GET, HEAD");
    if (request->header().method() != restinio::http_method_head())
        builder.set_body(response.body);
    builder.done();
}

} // namespace

struct HttpServer::Implementation {
    Implementation(asio::io_context &context, HttpAddress where, Handler what)
        : io(context), address(std::move(where)), handler(std::move(what)) {}

    restinio::request_handling_status_t handle(const restinio::request_handle_t &request) {
        const auto &header = request->header();
        if (header.method() != restinio::http_method_get() &&
            header.method() != restinio::http_method_head()) {
            answer(request, {405, "text/plain; charset=utf-8", "Only GET and HEAD.\n"});
            return restinio::request_accepted();
        }
        HttpRequest what{header.method() == restinio::http_method_get() ? "GET" : "HEAD",
                         std::string(header.path())};
        const auto parameters =
            restinio::try_parse_query<restinio::parse_query_traits::relaxed>(header.query());
        if (!parameters) {
            answer(request, {400, "text/plain; charset=utf-8", "The query cannot be read.\n"});
            return restinio::request_accepted();
        }
        for (const auto &[name, value] : *parameters)
            what.parameters.emplace(name, value);
        asio::co_spawn(io, handler(std::move(what)),
                       [request](const std::exception_ptr &failure, HttpResponse response) {
                           if (failure)
                               response = failed(failure);
                           answer(request, response);
                       });
        return restinio::request_accepted();
    }

    asio::io_context &io;
    HttpAddress address;
    Handler handler;
    std::unique_ptr<Server> server;
};

HttpServer::HttpServer(asio::io_context &io, HttpAddress address, Handler handler)
    : implementation_(
          std::make_unique<Implementation>(io, std::move(address), std::move(handler))) {}

HttpServer::~HttpServer() {
    if (implementation_->server)
        asio::use_service<Keeper>(implementation_->io).keep(std::move(implementation_->server));
}

void HttpServer::start() {
    Implementation &self = *implementation_;
    self.server =
        std::make_unique<Server>(restinio::external_io_context(self.io), [&self](auto &settings) {
            settings.address(self.address.host)
                .port(self.address.port)
                .max_parallel_connections(connections_max)
                .concurrent_accepts_count(1)
                // Or each of several answers in a row would wait for the other side's ACK.
                .socket_options_setter(
                    [](auto &options) { options.set_option(asio::ip::tcp::no_delay(true)); })
                .read_next_http_message_timelimit(request_time_max)
                .write_http_response_timelimit(request_time_max)
                .handle_request_timeout(request_time_max)
                .incoming_http_msg_limits(restinio::incoming_http_msg_limits_t{}
                                              .max_url_size(url_bytes_max)
                                              .max_field_name_size(header_bytes_max)
                                              .max_field_value_size(header_bytes_max)
                                              .max_field_count(headers_max)
                                              .max_body_size(0))
                .request_handler(
                    [&self](restinio::request_handle_t request) { return self.handle(request); });
        });
    try {
        self.server->open_sync();
    } catch (const std::exception &error) {
        self.server.reset();
        throw std::runtime_error(fmt::format("cannot listen on {}:{}: {}", self.address.host,
                                             self.address.port, error.what()));
    }
}

void HttpServer::stop() noexcept {
    Implementation &self = *implementation_;
    if (!self.server)
        return;
    try {
        self.server->close_sync();
    } catch (const std::exception &) {
        // The process ends, and its sockets with it.
    }
}

} // namespace stacksaga::coordinator
