#include "base/sd_notify.hpp"

#include <charconv>
#include <cstddef>
#include <cstring>
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

} // namespace stacksaga::coordinator
