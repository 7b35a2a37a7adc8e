#include "base/config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace stacksaga::coordinator {
namespace {

asio::ip::address plain(const asio::ip::address &address) {
    if (address.is_v6() && address.to_v6().is_v4_mapped())
        return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
    return address;
}

std::vector<unsigned char> bytes_of(const asio::ip::address &address) {
    if (address.is_v4()) {
        const auto bytes = address.to_v4().to_bytes();
        return {bytes.begin(), bytes.end()};
    }
    const auto bytes = address.to_v6().to_bytes();
    return {bytes.begin(), bytes.end()};
}

} // namespace

std::optional<std::vector<RingName>> rings_of(const std::vector<std::string> &regions,
                                              const std::vector<std::string> &clusters) {
    const std::size_t count = std::max(regions.size(), clusters.size());
    const auto fits = [&](std::size_t size) { return size == count || size == 1; };
    if (!fits(regions.size()) || !fits(clusters.size()))
        return std::nullopt;
    std::vector<RingName> rings;
    for (std::size_t i = 0; i < count; ++i) {
        RingName ring{regions[regions.size() == 1 ? 0 : i], clusters[clusters.size() == 1 ? 0 : i]};
        if (std::ranges::find(rings, ring) == rings.end())
            rings.push_back(std::move(ring));
    }
    return rings;
}

std::optional<HttpAddress> parse_http_address(const std::string &text) {
    constexpr std::string_view local = "unix:";
    constexpr std::size_t path_bytes_max = 107; // of sockaddr_un
    if (text.starts_with(local)) {
        HttpAddress address;
        address.path = text.substr(local.size());
        if (address.path.empty() || address.path.size() > path_bytes_max)
            return std::nullopt;
        return address;
    }
    const auto colon = text.rfind(':');
    if (colon == std::string::npos || colon == 0)
        return std::nullopt;
    std::string host = text.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']')
        host = host.substr(1, host.size() - 2);
    const std::string digits = text.substr(colon + 1);
    unsigned port = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error != std::errc() || end != digits.data() + digits.size() || port > 65535)
        return std::nullopt;
    return HttpAddress{std::move(host), static_cast<std::uint16_t>(port)};
}

bool HttpAddress::is_local() const {
    asio::error_code not_an_address;
    const auto address = asio::ip::make_address(host, not_an_address);
    return !path.empty() || host == "localhost" || (!not_an_address && address.is_loopback());
}

std::string HttpAddress::text() const {
    if (!path.empty())
        return "unix:" + path;
    return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                               : fmt::format("[{}]:{}", host, port);
}

std::optional<Network> Network::parse(const std::string &text) {
    const auto slash = text.find('/');
    asio::error_code not_an_address;
    const auto base = asio::ip::make_address(text.substr(0, slash), not_an_address);
    if (not_an_address)
        return std::nullopt;
    const unsigned bits_max = base.is_v4() ? 32 : 128;
    unsigned bits = bits_max;
    if (slash != std::string::npos) {
        const char *end = text.data() + text.size();
        const auto [rest, error] = std::from_chars(text.data() + slash + 1, end, bits);
        if (error != std::errc() || rest != end || bits > bits_max)
            return std::nullopt;
    }
    return Network(base, bits);
}

bool Network::contains(const asio::ip::address &address) const {
    const auto base = bytes_of(base_);
    const auto other = bytes_of(plain(address));
    if (base.size() != other.size())
        return false;
    for (unsigned bit = 0; bit < bits_; ++bit) {
        const unsigned mask = 0x80U >> (bit % 8);
        if ((base[bit / 8] & mask) != (other[bit / 8] & mask))
            return false;
    }
    return true;
}

} // namespace stacksaga::coordinator
