// The batch that a service answers for: its partitions, locked.
#pragma once
#include "src/outbox/subscription/position.hpp"
#include "src/outbox/subscription/subscription.hpp"

namespace stacksaga {

/// A batch whose partitions are locked. Its lease is valid, or it was given back.
struct HeldBatch {
    int64 batch_id;
    const Subscription *subscription;
    std::string_view consumer;
    std::span<Position> parts;

    /// Given back, and no consumer has received a message of it since.
    bool is_released() const { return parts[0].batch_id == 0; }
};

/// Whether a batch that was given back is taken as well.
enum class Released : uint8_t { refused, taken };

/// SG404 where there is no such batch, SG412 where it has lost its lease. Inside with_spi.
HeldBatch hold_batch(int64 batch_id, Released released);

} // namespace stacksaga
