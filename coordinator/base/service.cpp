#include "base/service.hpp"

#include <asio/bind_cancellation_slot.hpp>
#include <asio/co_spawn.hpp>
#include <asio/error.hpp>
#include <asio/post.hpp>
#include <asio/system_error.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unistd.h>

namespace stacksaga::coordinator {
namespace {

std::optional<std::int64_t> number_in(const char *text) noexcept {
    if (text == nullptr)
        return std::nullopt;
    const char *end = text + std::strlen(text);
    std::int64_t number = 0;
    const auto [stopped, error] = std::from_chars(text, end, number);
    return error == std::errc() && stopped == end ? std::optional(number) : std::nullopt;
}

} // namespace

Notifier::Notifier(const char *path) noexcept {
    const std::size_t length = path == nullptr ? 0 : std::strlen(path);
    if (length < 2 || (path[0] != '/' && path[0] != '@') || length >= sizeof address_.sun_path)
        return;
    address_.sun_family = AF_UNIX;
    std::memcpy(address_.sun_path, path, length);
    if (path[0] == '@')
        address_.sun_path[0] = '\0'; // an abstract name has no end but its length
    address_length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
    socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

Notifier::~Notifier() {
    if (socket_ >= 0)
        ::close(socket_);
}

void Notifier::notify(std::string_view state) const noexcept {
    if (socket_ >= 0)
        ::sendto(socket_, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                 reinterpret_cast<const sockaddr *>(&address_), address_length_);
}

std::optional<Duration> watchdog_period(const char *microseconds, const char *process) noexcept {
    const auto period = number_in(microseconds);
    if (!period || *period <= 1)
        return std::nullopt;
    if (process != nullptr && number_in(process) != ::getpid())
        return std::nullopt;
    return Duration{*period / 2};
}

std::string changed_settings(const std::string &before, const std::string &now) {
    std::set<std::string> known;
    std::string line;
    for (std::istringstream lines(before); std::getline(lines, line);)
        known.insert(line);
    std::string names;
    for (std::istringstream lines(now); std::getline(lines, line);)
        if (!known.contains(line) && !line.starts_with("log-"))
            names += (names.empty() ? "" : ", ") + line.substr(0, line.find(" = "));
    return names;
}

void run_until_stopped(asio::io_context &io, asio::awaitable<void> task) {
    asio::cancellation_signal stop;
    asio::signal_set signals(io, SIGINT, SIGTERM);
    signals.async_wait([&](const asio::error_code &error, int) {
        if (!error)
            stop.emit(asio::cancellation_type::terminal);
    });
    std::exception_ptr failure;
    asio::co_spawn(io, std::move(task),
                   asio::bind_cancellation_slot(stop.slot(), [&](std::exception_ptr thrown) {
                       failure = std::move(thrown);
                       io.stop();
                   }));
    io.restart();
    io.run();
    try {
        if (failure)
            std::rethrow_exception(failure);
    } catch (const asio::system_error &error) {
        if (error.code() != asio::error::operation_aborted)
            throw;
    }
}

Service::Service(asio::io_context &io, Log &log, const Config &config, ReadConfig read_again)
    : io_(io), log_(log), settings_(config.printed), read_again_(std::move(read_again)),
      notifier_(std::getenv("NOTIFY_SOCKET")),
      watchdog_(watchdog_period(std::getenv("WATCHDOG_USEC"), std::getenv("WATCHDOG_PID"))),
      watchdog_timer_(io), stops_(io, SIGINT, SIGTERM), requests_(io, SIGHUP, SIGUSR1) {}

std::exception_ptr Service::run(asio::awaitable<void> role, ServiceHooks hooks) {
    hooks_ = std::move(hooks);
    std::exception_ptr failure;
    wait_for_stop();
    wait_for_request();
    // The daemon is ready even without its database, because it waits for the database.
    asio::post(io_, [this] {
        notifier_.notify("READY=1");
        keep_alive();
    });
    asio::co_spawn(io_, std::move(role),
                   asio::bind_cancellation_slot(cancel_.slot(), [&](std::exception_ptr thrown) {
                       failure = std::move(thrown);
                       notifier_.notify("STOPPING=1");
                       stops_.cancel();
                       requests_.cancel();
                       watchdog_.reset();
                       watchdog_timer_.cancel();
                       if (hooks_.end)
                           hooks_.end();
                       // HTTP clients that keep their connections must not delay the end.
                       io_.stop();
                   }));
    io_.run();
    // The operations that hooks_.end cancelled finish while their objects still exist.
    io_.restart();
    io_.poll();
    return failure;
}

void Service::status(std::string text) const {
    std::ranges::replace(text, '\n', ' ');
    notifier_.notify("STATUS=" + text);
}

void Service::wait_for_stop() {
    stops_.async_wait([this](const asio::error_code &error, int number) {
        if (error)
            return; // the role ended by itself
        stop(number);
        wait_for_stop();
    });
}

void Service::stop(int signal) {
    stop_signal_ = signal;
    notifier_.notify("STOPPING=1");
    cancel_.emit(asio::cancellation_type::terminal);
}

void Service::wait_for_request() {
    requests_.async_wait([this](const asio::error_code &error, int number) {
        if (error)
            return;
        if (number == SIGHUP)
            reload();
        else if (hooks_.dump)
            hooks_.dump();
        wait_for_request();
    });
}

void Service::keep_alive() {
    if (!watchdog_)
        return;
    notifier_.notify("WATCHDOG=1");
    watchdog_timer_.expires_after(*watchdog_);
    watchdog_timer_.async_wait([this](const asio::error_code &error) {
        if (!error)
            keep_alive();
    });
}

void Service::reload() {
    const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
    notifier_.notify(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", now.count()));
    try {
        const Config read = read_again_();
        log_.configure(read.log_format, read.log_level);
        const std::string changed = changed_settings(settings_, read.printed);
        if (!changed.empty())
            log_.warn("changed settings need a restart", {{"settings", changed}});
        log_.info("reloaded", {{"log_level", name_of(read.log_level)}});
    } catch (const std::runtime_error &error) {
        log_.error("reload failed, the settings are unchanged", {{"error", error.what()}});
    }
    if (hooks_.reload)
        hooks_.reload();
    notifier_.notify("READY=1");
}

} // namespace stacksaga::coordinator
