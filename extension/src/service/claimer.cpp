#include "src/service/claimer.hpp"

#include "core/common/session_cache.hpp"
#include "core/ring/murmur3.hpp"
#include "core/ring/node_state.hpp"

#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/errors.hpp"
#include "pg/lock.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/select.hpp"
#include "pg/table/lookup.hpp"
#include "pg/table/relation_change.hpp"
#include "src/common/limits.hpp"
#include "src/ring/ranges.hpp"
#include "src/ring/rings.hpp"

namespace stacksaga {

namespace {

enum class NodeColumn : uint8_t { ring_id, incarnation, kind, region, cluster, holds_slots };
constinit pg::Select<NodeColumn> find_node{
    "SELECT n.ring_id, n.incarnation, n.kind, r.region, r.cluster,"
    "       n.kind = 'standard' OR EXISTS (" SLOTS_HELD(
        "$2", "n.incarnation",
        "$3") ") AS holds_slots"
              "  FROM stacksaga.node n JOIN stacksaga.ring r ON r.ring_id = n.ring_id"
              " WHERE n.node = $1"};

/// Whether a session may warn of a claimer and a ring again. For a pair that shares its place in
/// the memory with another pair the warning may come sooner.
bool is_time_to_warn(int32 ring_id, std::string_view name) {
    using Instant = std::optional<TimestampTz>;
    static constinit core::SessionCache<Instant, 16> warnings{};
    const uint64 key = core::murmur3_x64_128(name, static_cast<uint32>(ring_id)).h1;
    const TimestampTz now = pg::clock_now();
    Instant &warned_at = warnings.value(key, [] { return Instant{}; });
    if (warned_at && core::age_of(*warned_at, now) < USECS_PER_MINUTE)
        return false;
    warned_at = now;
    return true;
}

void warn_that_it_holds_nothing(const Ring &ring, std::string_view name,
                                const pg::RowsOf<NodeColumn> &node) {
    if (!is_time_to_warn(ring.ring_id, name))
        return;
    const bool is_elsewhere = node.int4(0, NodeColumn::ring_id) != ring.ring_id;
    ereport(WARNING,
            (errmsg("node \"%s\" holds no token range here and gets no retries", clip(name)),
             is_elsewhere
                 ? errdetail("It is a node of region \"%s\", cluster \"%s\", and this session "
                             "claims from another ring.",
                             clip(node.text(0, NodeColumn::region)),
                             clip(node.text(0, NodeColumn::cluster)))
                 : errdetail("It gets first attempts only until a window assigns slots to it."),
             is_elsewhere
                 ? errhint("Set stacksaga.region and stacksaga.cluster to the ring of the node.")
                 : errhint("Call heartbeat_node() regularly and run stacksaga-coordinator; or call "
                           "stacksaga.leave_ring(): a claimer that is not registered gets all "
                           "that is due.")));
}

/// Whether there is a row of `key` in the table of nodes, looked up without a statement. True also
/// when the table cannot be read that way.
bool may_have_node(std::span<const pg::KeyColumn> key) {
    bool is_found = false;
    const bool is_read =
        pg::try_index(node_table, NodeIndex::primary_key, [&](pg::IndexReader &reader) {
            reader.seek(key);
            is_found = reader.next() != nullptr;
        });
    return is_found || !is_read;
}

/// Most databases have no node, which a session remembers until one is registered.
bool may_have_nodes() {
    static constinit struct {
        uint64 state;
        bool is_any;
    } known{};
    const uint64 state = pg::relations_state();
    if (known.state != state) {
        const bool is_any = may_have_node({});
        known = {.state = state, .is_any = is_any};
    }
    return known.is_any;
}

/// Most claimers are not nodes.
bool may_be_node(std::string_view name) {
    if (!may_have_nodes())
        return false;
    const pg::KeyColumn key{F_TEXTEQ, DEFAULT_COLLATION_OID, PointerGetDatum(pg::make_text(name))};
    return may_have_node({&key, 1});
}

} // namespace

std::optional<Claimer> find_claimer(const Ring &ring, std::string_view name) {
    if (!may_be_node(name))
        return std::nullopt;
    const auto node =
        find_node.run(pg::param(name), pg::param(ring.ring_id), pg::param_time(pg::clock_now()));
    if (node.empty())
        return std::nullopt;
    if (!node.boolean(0, NodeColumn::holds_slots))
        warn_that_it_holds_nothing(ring, name, node);
    return Claimer{
        .node = {node.int4(0, NodeColumn::ring_id), node.int8(0, NodeColumn::incarnation)},
        .kind = node.text(0, NodeColumn::kind)};
}

// ---------------------------------------------------------------------------------- unnamed queues

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
    if (is_named.run(pg::param(queue)).boolean(0))
        return;
    // A lock of the session, which its owner or a pooler releases with all others.
    const LOCKTAG tag = tag_of(static_cast<uint32>(ring_id), hash);
    (void)LockAcquire(&tag, ShareLock, true, true);
}

} // namespace stacksaga
