// Sessions that wait for the steps of a queue: their line, and their claims.
#pragma once
#include "core/ring/murmur3.hpp"

#include "src/common/promised_claims.hpp"
#include "src/common/waiting_line.hpp"

namespace stacksaga {

inline WaitingLine line_of_queue(int32 ring_id, std::string_view queue) {
    return {.lock_class = pg::LockClass::queue,
            .first = static_cast<uint32>(ring_id),
            .second = hash_bytes(reinterpret_cast<const unsigned char *>(queue.data()),
                                 static_cast<int>(queue.size()))};
}

inline ClaimPlace claims_of_queue(int32 ring_id, std::string_view queue) {
    return {.hash = core::murmur3_x64_128(queue, static_cast<uint32>(ring_id)).h1,
            .watch_us = 5000,
            .hurry = 1};
}

/// Wakes the first waiter of the queue when the current transaction commits.
inline void wake_waiters_at_commit(int32 ring_id, std::string_view queue) {
    wake_waiters_at_commit(line_of_queue(ring_id, queue));
}

} // namespace stacksaga
