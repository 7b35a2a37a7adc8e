// Scale: what coordination costs and how long it takes to recover, for many servers without faults
// of the network. Prints the table that docs/scale.md quotes.
#pragma once

#include <cstdint>
#include <string>

namespace stacksaga::sim {

/// Servers are independent rings; workers are shared out evenly, the other numbers are per server.
struct ScaleSettings {
    std::int64_t servers = 1;
    std::int64_t workers = 10; ///< of all servers together
    std::int64_t agents = 0;
    std::int64_t masters = 2;
    std::int64_t slots = 256;
    std::int64_t windows = 10; ///< in which nothing fails, after the first three
};

/// Reads "servers=100,workers=10000"; std::invalid_argument for a name or number that is wrong.
ScaleSettings parse_scale(const std::string &text);

/// The table, the same for the same settings.
std::string measure_scale(const ScaleSettings &settings);

} // namespace stacksaga::sim
