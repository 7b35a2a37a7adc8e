// Which partitions of a subscription a worker delivers from: those whose first slot its node owns.
#pragma once
#include "src/outbox/outbox.hpp"
#include "src/ring/node.hpp"

namespace stacksaga {

/// Inside with_spi, for a subscription with this number of partitions.

/// The partitions that the node owns, as a hint.
PartitionSet owned_partitions(const NodeIdentity &node, int32 partitions);

/// Those of `wanted` that it owns, locked against a change of owner.
PartitionSet lock_owned_partitions(const NodeIdentity &node, int32 partitions,
                                   const PartitionSet &wanted);

} // namespace stacksaga
