// The last full probe of an index that was dear, shared by the sessions of a database (probe.hpp).
//
// While a snapshot is held open for an hour a full probe steps over millions of dead entries. What
// one session has found by it the others believe, so that neither each of them nor each new one
// has to find it by itself. It stands in the mapped file of counter_file.hpp, without a lock: who
// reads a place while it is being written sees by its checksum that there is nothing to believe.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

struct FullProbe {
    TimestampTz at;         ///< what was committed by then it has seen
    TimestampTz first_left; ///< what it left begins here
    int64 interval_us;      ///< so long nobody needs another one

    bool is_recent(TimestampTz now) const { return at <= now && at > now - interval_us; }
};

/// By the key of what was probed, which is a hash. nullopt: nobody has shared one, or another key
/// has taken its place.
std::optional<FullProbe> shared_probe(uint64 key);
void share_probe(uint64 key, const FullProbe &probe);
void forget_shared_probe(uint64 key);

} // namespace stacksaga
