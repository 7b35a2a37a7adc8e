// A network in CIDR notation, and whether an address belongs to it. Pure.
#pragma once

#include <asio/ip/address.hpp>

#include <optional>
#include <string>

namespace stacksaga::coordinator {

class Network {
public:
    /// "10.0.0.0/8", "fd00::/8", or one address; nothing for any other text.
    static std::optional<Network> parse(const std::string &text);

    /// An IPv4 address counts as itself also where a socket of IPv6 shows it as ::ffff:a.b.c.d.
    [[nodiscard]] bool contains(const asio::ip::address &address) const;

private:
    Network(asio::ip::address base, unsigned bits) : base_(std::move(base)), bits_(bits) {}

    asio::ip::address base_;
    unsigned bits_;
};

} // namespace stacksaga::coordinator
