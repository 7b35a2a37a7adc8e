#include "src/saga/unnamed_queue.hpp"

#include "pg/lock.hpp"
#include "pg/query.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement is_named{
    "SELECT EXISTS (SELECT FROM stacksaga.definition_step"
    "                WHERE queue = $1 OR (fallback = $1 AND kind NOT IN ('sql', 'message')))",
    pg::Plans::by_statistics};

struct Look {
    uint32 ring_id;
    uint32 queue; ///< hash of its name
    TimestampTz at;
};

/// The queues that this session has looked for; with more than these it looks more often.
constinit std::array<Look, 8> looks{};
constinit size_t next_look = 0;

bool has_looked(uint32 ring_id, uint32 queue, TimestampTz now) {
    Look *look = std::find_if(looks.begin(), looks.end(), [&](const Look &l) {
        return l.at != 0 && l.ring_id == ring_id && l.queue == queue;
    });
    if (look == looks.end())
        look = &looks[next_look++ % looks.size()];
    else if (now >= look->at && now - look->at < USECS_PER_MINUTE)
        return true;
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
    const LOCKTAG tag =
        pg::lock_tag(pg::LockClass::unnamed_queue, static_cast<uint32>(ring_id), hash);
    // The session's, which its owner or a pooler gives back with all others; held once.
    if (LockAcquire(&tag, ShareLock, true, true) == LOCKACQUIRE_ALREADY_HELD)
        LockRelease(&tag, ShareLock, true);
}

} // namespace stacksaga
