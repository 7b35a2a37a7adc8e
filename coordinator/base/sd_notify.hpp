// Notifies systemd of the daemon's state (sd_notify(3)) without libsystemd: one datagram for each
// message.
#pragma once

#include "base/time.hpp"

#include <optional>
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

} // namespace stacksaga::coordinator
