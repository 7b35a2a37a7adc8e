#include "web/random_text.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <sys/random.h>
#include <system_error>
#include <vector>

namespace stacksaga::coordinator {

std::string random_text(std::size_t bytes) {
    std::vector<unsigned char> random(bytes);
    for (std::size_t filled = 0; filled < bytes;) {
        const ssize_t count = ::getrandom(random.data() + filled, bytes - filled, 0);
        if (count < 0 && errno != EINTR)
            throw std::system_error(errno, std::generic_category(), "getrandom");
        filled += count > 0 ? static_cast<std::size_t>(count) : 0;
    }
    std::string text;
    for (const unsigned char byte : random)
        text += fmt::format("{:02x}", byte);
    return text;
}

bool equal_secrets(std::string_view left, std::string_view right) noexcept {
    if (left.size() != right.size())
        return false;
    unsigned difference = 0;
    for (std::size_t i = 0; i < left.size(); ++i)
        difference |= static_cast<unsigned>(left[i] ^ right[i]);
    return difference == 0;
}

} // namespace stacksaga::coordinator
