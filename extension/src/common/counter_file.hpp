// The small file that every process of the server maps, to count in and to share what was found,
// one for each database.
//
// It is in pg_stat_tmp, which survives restarts and crashes of the server and which base backups
// leave out. No WAL is written for it.
#pragma once
#include "src/common/saga_tally.hpp"

namespace stacksaga {

/// A shared full probe (probe.hpp).
struct SharedProbe {
    pg_atomic_uint64 checksum, at, first_left, interval_us;
};

/// A consumer of a subscription (outbox/subscription/consumer_partitions.hpp).
struct SharedConsumer {
    pg_atomic_uint64 key; ///< 0: never taken
    pg_atomic_uint64 asked;
    pg_atomic_uint64 until; ///< it asked, or holds a batch until then
};

/// Shared about the sessions that have left a line of waiters (promised_claims.hpp).
struct SharedLine {
    std::array<pg_atomic_uint64, 4> promised;
    pg_atomic_uint64 watched_until;
    pg_atomic_uint64 taken;
};

inline constexpr size_t message_waits = 1024;

struct CounterFile {
    std::array<pg_atomic_uint64, 512> counters; ///< as counters.hpp numbers them
    std::array<SharedProbe, 512> probes;        ///< by the hash of what was probed
    std::array<SharedConsumer, 1024> consumers; ///< by the hash of the consumer
    std::array<SharedLine, 512> lines;          ///< by the hash of the line
    /// Until when sessions wait for messages, by the hash of the topic; of all wildcards last
    /// (outbox/log/message_waiters.hpp).
    std::array<pg_atomic_uint64, message_waits + 1> messages_waited_for;
    SagaTallies sagas; ///< its last array goes on behind the struct
};

/// nullptr where the file cannot be had; the server's log says so once. Never raises.
CounterFile *counter_file();

} // namespace stacksaga
