// The behaviour of a service: signals, reloading, and notifications to systemd (sd_notify(3)) with
// its watchdog, without libsystemd: one datagram for each message.
#pragma once

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/time.hpp"

#include <asio/awaitable.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>

namespace stacksaga::coordinator {

/// Lifecycle: constructed once. Does nothing without a supervisor. Thread: any, one at a time.
class Notifier {
public:
    /// `path` is NOTIFY_SOCKET: a file, or an abstract name that begins with "@". If it is null,
    /// empty or too long for a socket's name, there is no supervisor.
    explicit Notifier(const char *path) noexcept;
    Notifier(const Notifier &) = delete;
    Notifier &operator=(const Notifier &) = delete;
    ~Notifier();

    [[nodiscard]] bool is_heard() const noexcept { return socket_ >= 0; }

    /// Sends lines of NAME=VALUE. Never waits: a message is lost if the supervisor's queue is full,
    /// but the next keep-alive comes soon.
    void notify(std::string_view state) const noexcept;

private:
    int socket_ = -1;
    sockaddr_un address_{};
    socklen_t address_length_ = 0;
};

/// The interval of WATCHDOG=1: half of WATCHDOG_USEC, if WATCHDOG_PID names this process. Nothing
/// when there is no watchdog.
[[nodiscard]] std::optional<Duration> watchdog_period(const char *microseconds,
                                                      const char *process) noexcept;

/// The functions that the service calls. Each may be empty.
struct ServiceHooks {
    std::function<void()> dump;     ///< SIGUSR1: log the state
    std::function<void()> end;      ///< the role has ended: stop everything else on the loop
    std::function<void()> reload{}; ///< SIGHUP: read other files again
};

/// Lifecycle: constructed, run() once. Thread: that of the io_context.
///
/// SIGTERM and SIGINT cancel the role. SIGHUP reads the configuration again and applies the log's
/// level and format. SIGUSR1 logs the state. systemd receives READY, RELOADING, STOPPING, STATUS
/// and, at half of its watchdog's time, WATCHDOG.
class Service {
public:
    /// Throws std::runtime_error with the mistake in the settings.
    using ReadConfig = std::function<Config()>;

    Service(asio::io_context &io, Log &log, const Config &config, ReadConfig read_again);

    /// Runs the role until it ends; returns its exception.
    std::exception_ptr run(asio::awaitable<void> role, ServiceHooks hooks);

    /// One line for `systemctl status`.
    void status(std::string text) const;

    /// The signal that ended the role, or 0.
    [[nodiscard]] int stop_signal() const noexcept { return stop_signal_; }

private:
    void wait_for_stop();
    void wait_for_request();
    void stop(int signal);
    void keep_alive();
    void reload();

    asio::io_context &io_;
    Log &log_;
    std::string settings_; ///< as Config::printed
    ReadConfig read_again_;
    ServiceHooks hooks_;
    Notifier notifier_;
    std::optional<Duration> watchdog_;
    asio::steady_timer watchdog_timer_;
    asio::signal_set stops_;
    asio::signal_set requests_;
    asio::cancellation_signal cancel_;
    int stop_signal_ = 0;
};

/// Runs a task alone until it ends or SIGINT or SIGTERM cancels it. Throws what it throws, unless a
/// signal cancelled it.
void run_until_stopped(asio::io_context &io, asio::awaitable<void> task);

/// The names of the settings that a reload cannot apply: the lines of `now` that `before` lacks,
/// without those of the log.
[[nodiscard]] std::string changed_settings(const std::string &before, const std::string &now);

} // namespace stacksaga::coordinator
