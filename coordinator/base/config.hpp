// The settings of the daemon's roles, and the addresses that it listens at and trusts.
#pragma once

#include "base/log.hpp"

#include <asio/ip/address.hpp>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stacksaga::coordinator {

/// Names one virtual cluster.
struct RingName {
    std::string region;
    std::string cluster;

    auto operator<=>(const RingName &) const = default;

    /// REGION/CLUSTER.
    [[nodiscard]] std::string text() const { return region + "/" + cluster; }
};

/// Pairs regions with clusters by position; a single one of either goes with each of the other.
/// Nothing when their numbers do not fit. Duplicates are dropped.
[[nodiscard]] std::optional<std::vector<RingName>>
rings_of(const std::vector<std::string> &regions, const std::vector<std::string> &clusters);

/// The address to listen on, and the daemon's host names. Without host and path: no server.
struct HttpAddress {
    std::string host;
    std::uint16_t port = 0;
    std::vector<std::string> names{}; ///< accepted in requests, besides localhost and `host`
    std::string path{};               ///< of a Unix socket, in place of host and port

    [[nodiscard]] bool empty() const noexcept { return host.empty() && path.empty(); }
    /// Whether only programs on this machine can connect.
    [[nodiscard]] bool is_local() const;
    /// HOST:PORT or unix:PATH.
    [[nodiscard]] std::string text() const;
};

/// HOST:PORT, [V6]:PORT or unix:PATH; nothing when it is neither.
[[nodiscard]] std::optional<HttpAddress> parse_http_address(const std::string &text);

/// A network in CIDR notation.
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

/// Access to the page. Without a file and a header every viewer only reads. At most one of both is
/// set.
struct AccessSettings {
    std::string operators_file;
    std::string operator_header; ///< its name in lower case
    std::vector<Network> trusted_proxies;
    std::vector<std::string> names; ///< of this daemon, for the Origin of requests
    bool hide_payloads = false;     ///< from everybody
};

/// Where spans are sent.
struct OtlpSettings {
    std::string endpoint;             ///< http(s)://HOST:PORT[/PATH]; empty for none
    std::vector<std::string> headers; ///< NAME: VALUE, of each request
};

struct Config {
    std::vector<std::string> databases; ///< of master: at least one, as conninfo
    std::string conninfo;               ///< the first of them; empty: libpq's environment alone
    std::vector<RingName> rings;
    bool session_pooler = false; ///< the pooler gives each client its own session
    std::string publisher;       ///< of agent: its name as a node
    double weight = 1;           ///< of agent
    HttpAddress http;
    HttpAddress metrics_http;
    AccessSettings access;
    OtlpSettings otlp;           ///< of master
    bool http_is_default = true; ///< the user did not choose it: a port in use is no error
    LogFormat log_format = LogFormat::logfmt;
    LogLevel log_level = LogLevel::info;
    bool once = false;
    bool dry_run = false; ///< of master: print the next windows, publish nothing
    std::string printed;  ///< the settings, each with its source
};

} // namespace stacksaga::coordinator
