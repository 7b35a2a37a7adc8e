// Partitions of a subscription and stripes of the log: both are the top bits of a token, as the
// slots of the ring are, so the borders of the coarser ones are borders of the finer ones.
#pragma once

#include "core/ring/slots.hpp"

namespace stacksaga::core {

/// Number of stripes of the log. The indexes of its tables begin with the stripe: this number
/// never changes.
inline constexpr int log_stripes = 16;

/// A subscription is read in a number of partitions of its own: each has a position, and one
/// consumer at a time.
inline constexpr int partitions_max = 256;

constexpr bool is_partition_count(int partitions) {
    return partitions >= 1 && partitions <= partitions_max &&
           std::has_single_bit(static_cast<unsigned>(partitions));
}

constexpr std::int16_t stripe_of(Token token) {
    return static_cast<std::int16_t>(slot_of(token, log_stripes));
}
constexpr std::int16_t partition_of(Token token, int partitions) {
    return static_cast<std::int16_t>(slot_of(token, partitions));
}

/// Adjacent stripes.
struct Stripes {
    int first;
    int last;
    constexpr int count() const { return last - first + 1; }
};

/// The stripes that hold the messages of adjacent partitions.
constexpr Stripes stripes_of(int first, int last, int partitions) {
    return {.first = first * log_stripes / partitions,
            .last = ((last + 1) * log_stripes - 1) / partitions};
}

/// Number of partitions that have one stripe in common: it is read once for all of them.
constexpr int partitions_together(int partitions) {
    return partitions < log_stripes ? 1 : partitions / log_stripes;
}

/// The slot that a partition begins in. Its owner delivers the partition.
constexpr int first_slot_of(int partition, int partitions, int slots) {
    return static_cast<int>(static_cast<std::int64_t>(partition) * slots / partitions);
}

} // namespace stacksaga::core
