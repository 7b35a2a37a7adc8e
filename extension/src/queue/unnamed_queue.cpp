#include "src/queue/unnamed_queue.hpp"

#include "pg/compat.hpp"
#include "pg/lock.hpp"
#include "pg/statement/query.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement is_named{
    "SELECT EXISTS (SELECT FROM stacksaga.definition_step"
    "                WHERE $1 IN (queue, compensation_queue)"
    "                   OR (fallback = $1 AND kind NOT IN ('sql', 'message')))",
    pg::Plans::by_statistics};

struct Look {
    uint32 ring_id;
    uint32 queue; ///< hash of its name
    TimestampTz at;
};

/// The queues that this session has looked for. With more than these it looks more often, and it
/// holds locks for these alone.
constinit std::array<Look, 8> looks{};
constinit size_t next_look = 0;

LOCKTAG tag_of(uint32 ring_id, uint32 queue) {
    return pg::lock_tag(pg::LockClass::unnamed_queue, ring_id, queue);
}

bool has_looked(uint32 ring_id, uint32 queue, TimestampTz now) {
    Look *look = std::find_if(looks.begin(), looks.end(), [&](const Look &l) {
        return l.at != 0 && l.ring_id == ring_id && l.queue == queue;
    });
    if (look == looks.end())
        look = &looks[next_look++ % looks.size()];
    else if (now >= look->at && now - look->at < USECS_PER_MINUTE)
        return true;
    const LOCKTAG tag = tag_of(look->ring_id, look->queue);
    if (look->at != 0 && pg::holds_lock(tag, ShareLock))
        LockRelease(&tag, ShareLock, true);
    *look = {ring_id, queue, now};
    return false;
}

} // namespace

void note_empty_claim(int32 ring_id, std::string_view queue, TimestampTz now) {
    const uint32 hash = hash_bytes(reinterpret_cast<const unsigned char *>(queue.data()),
                                   static_cast<int>(queue.size()));
    if (has_looked(static_cast<uint32>(ring_id), hash, now))
        return;
    if (is_named.run(pg::param(queue)).boolean(0, 0))
        return;
    // A lock of the session, which its owner or a pooler releases with all others.
    const LOCKTAG tag = tag_of(static_cast<uint32>(ring_id), hash);
    (void)LockAcquire(&tag, ShareLock, true, true);
}

} // namespace stacksaga
