// The shares of consumers in the partitions of a subscription: even, and together all of them.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stacksaga::core {

/// The share of the consumer with this rank, from 0, among all consumers: shares differ by one at
/// most. Where there are more consumers than partitions, the first that asks gets one.
constexpr std::int32_t share_of_consumer(std::int32_t partitions, std::int32_t consumers,
                                         std::int32_t rank) {
    return std::max(1, partitions / consumers + (rank < partitions % consumers ? 1 : 0));
}

} // namespace stacksaga::core
