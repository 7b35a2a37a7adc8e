#include "http/network.hpp"

#include <charconv>
#include <vector>

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
