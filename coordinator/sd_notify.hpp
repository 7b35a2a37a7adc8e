// What systemd is told of the daemon (sd_notify(3)), without libsystemd: a datagram a message.
#pragma once

#include "types.hpp"

#include <optional>
#include <string_view>

#include <sys/socket.h>
#include <sys/un.h>

namespace stacksaga::coordinator {

/// Lifecycle: made once. Says nothing where nobody listens. Thread: any, one at a time.
class Notifier {
public:
    /// `path` is NOTIFY_SOCKET: a file, or an abstract name that begins with "@". Null, empty or
    /// longer than a socket's name may be: there is nobody to tell.
    explicit Notifier(const char *path) noexcept;
    Notifier(const Notifier &) = delete;
    Notifier &operator=(const Notifier &) = delete;
    ~Notifier();

    [[nodiscard]] bool is_heard() const noexcept { return socket_ >= 0; }

    /// Sends lines of NAME=VALUE. Never waits: what a supervisor's full queue cannot take is lost,
    /// and the next keep-alive comes soon.
    void tell(std::string_view state) const noexcept;

private:
    int socket_ = -1;
    sockaddr_un address_{};
    socklen_t address_length_ = 0;
};

/// How often the watchdog wants to hear WATCHDOG=1: half of WATCHDOG_USEC, if it means this process
/// (WATCHDOG_PID). Nothing when there is no watchdog.
[[nodiscard]] std::optional<Duration> watchdog_period(const char *microseconds,
                                                      const char *process) noexcept;

} // namespace stacksaga::coordinator
