// The last slow full probe of an index, shared by the sessions of a database (probe.hpp).
//
// While a snapshot is held open for an hour a full probe steps over millions of dead entries. What
// one session has found by it the others believe, so that neither each of them nor each new one
// has to find it by itself. It stands in the mapped file of counter_file.hpp, without a lock: a
// session that reads a place while it is written sees a wrong checksum, and ignores it.
#pragma once
#include "pg/pg.hpp"

namespace stacksaga {

struct FullProbe {
    TimestampTz at;         ///< it saw all that was committed by then
    TimestampTz first_left; ///< the first due row that it left
    int64 interval_us;      ///< how long this one stays valid

    bool is_recent(TimestampTz now) const { return at <= now && at > now - interval_us; }
};

/// By the key of what was probed, which is a hash. nullopt: nobody has shared one, or another key
/// has taken its place.
std::optional<FullProbe> shared_probe(uint64 key);
void share_probe(uint64 key, const FullProbe &probe);
void forget_shared_probe(uint64 key);

} // namespace stacksaga
