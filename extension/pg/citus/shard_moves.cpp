#include "pg/citus/shard_moves.hpp"

#include "pg/citus/citus.hpp"
#include "pg/compat.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "pg/table/relation_change.hpp"

namespace stacksaga::pg {

namespace {

// In the order of Citus's positions. A move updates the row of a placement, there and back again.
enum class ShardColumn : uint8_t { first, id, placement, colocation };
constinit Select<ShardColumn> list_shards{
    "SELECT s.shardminvalue::pg_catalog.int4 AS first, s.shardid AS id,"
    "       pg_catalog.hashtextextended(pg_catalog.string_agg(p.placementid::pg_catalog.text || ' '"
    "           || p.groupid::pg_catalog.text || ' ' || p.xmin::pg_catalog.text, ','"
    "           ORDER BY p.placementid), 0) AS placement,"
    "       t.colocationid AS colocation"
    "  FROM pg_catalog.pg_dist_shard s"
    "  JOIN pg_catalog.pg_dist_placement p ON p.shardid = s.shardid"
    "  JOIN pg_catalog.pg_dist_partition t ON t.logicalrelid = s.logicalrelid"
    " WHERE s.logicalrelid = $1::pg_catalog.regclass"
    " GROUP BY s.shardid, s.shardminvalue, t.colocationid ORDER BY 1",
    Plans::by_statistics};
constinit Statement lock_shards{"SELECT pg_catalog.lock_shard_metadata($1, $2)",
                                Plans::by_statistics};

struct Shard {
    int32 first; ///< of the hashes of its tokens
    int64 id;
    int64 placement; ///< another number after each move
};

/// Of the table that all others are distributed beside, as the session has read it last.
struct Map {
    Shard *shards; ///< by position
    size_t size;
    uint64 state; ///< `changes` before it was read; 0: it is not
    uint32 colocation;
    std::span<const Shard> all() const { return {shards, size}; }
};
constinit Map map{};

/// The notes of the current transaction.
struct Noted {
    Shard *shards;
    size_t count;
    size_t room;
    LocalTransactionId transaction;
    uint64 since; ///< `changes` before the first one
    bool has_written;
    std::span<const Shard> all() const { return {shards, count}; }
};
constinit Noted noted{};

constinit uint64 changes = 0; ///< of these shards, which the session has noticed
constinit Oid watched = InvalidOid;

void note_change(Datum, Oid relation) {
    if (!OidIsValid(relation) || relation == watched)
        ++changes;
}

/// Citus tells that the shards of a table have changed as PostgreSQL tells that a table has.
uint64 present_state() {
    if (changes == 0) {
        watch_relations(note_change);
        changes = 1;
    }
    AcceptInvalidationMessages();
    const Oid table = get_relname_relid("idempotency_key", get_namespace_oid("stacksaga", false));
    if (table != watched) {
        watched = table;
        ++changes;
    }
    return changes;
}

void read_map() {
    const uint64 state = present_state();
    if (map.state == state)
        return;
    const auto rows = list_shards.run(param_datum(OIDOID, ObjectIdGetDatum(watched)));
    auto *shards = static_cast<Shard *>(MemoryContextAlloc(
        TopMemoryContext, sizeof(Shard) * static_cast<size_t>(std::max<uint64>(rows.count(), 1))));
    for (uint64 i = 0; i < rows.count(); ++i)
        shards[i] = {.first = rows.int4(i, ShardColumn::first),
                     .id = rows.int8(i, ShardColumn::id),
                     .placement = rows.int8(i, ShardColumn::placement)};
    if (map.shards != nullptr)
        pfree(map.shards);
    map = {.shards = shards,
           .size = static_cast<size_t>(rows.count()),
           .state = state,
           .colocation =
               rows.empty() ? 0 : static_cast<uint32>(rows.int4(0, ShardColumn::colocation))};
}

const Shard *shard_of(int64 token) {
    const int32 hash = static_cast<int32>(token >> 32);
    const auto after =
        std::ranges::upper_bound(map.all(), hash, std::ranges::less{}, &Shard::first);
    return after == map.all().begin() ? nullptr : &*std::prev(after);
}

void note(const Shard &shard) {
    for (const Shard &known : noted.all())
        if (known.id == shard.id && known.placement == shard.placement)
            return;
    if (noted.count == noted.room) {
        const size_t room = std::max<size_t>(2 * noted.room, 32);
        noted.shards = static_cast<Shard *>(
            noted.shards == nullptr ? MemoryContextAlloc(TopMemoryContext, room * sizeof(Shard))
                                    : repalloc(noted.shards, room * sizeof(Shard)));
        noted.room = room;
    }
    noted.shards[noted.count++] = shard;
}

bool is_of_this_transaction() {
    return noted.transaction == local_transaction_id();
}

void begin_notes() {
    if (is_of_this_transaction())
        return;
    noted.since = present_state();
    noted.transaction = local_transaction_id();
    noted.count = 0;
    noted.has_written = false;
}

[[noreturn]] void raise_moved(int64 shard) {
    ereport(
        ERROR,
        (errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
         errmsg("could not serialize access: a shard was moved or split during the transaction"),
         errdetail("What the transaction has written to shard %lld would be lost with the "
                   "shard's old placement.",
                   static_cast<long long>(shard)),
         errhint("Retry the transaction.")));
}

const Shard *present_shard(const Shard &shard) {
    const auto at = std::ranges::find(map.all(), shard.id, &Shard::id);
    return at == map.all().end() || at->placement != shard.placement ? nullptr : &*at;
}

void compare_placements() {
    for (const Shard &shard : noted.all())
        if (present_shard(shard) == nullptr)
            raise_moved(shard.id);
}

/// Citus's tag for the position of a shard; it has no function that does not wait for such a lock.
LOCKTAG tag_of_position(size_t position) {
    constexpr uint16 colocated_shards = 8;
    LOCKTAG tag;
    SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, static_cast<uint32>(position), map.colocation,
                         colocated_shards);
    return tag;
}

/// Locks what has been noted, as writes do, and returns how many positions are below the last.
size_t lock_present_positions() {
    auto *ids = static_cast<int64 *>(palloc(sizeof(int64) * std::max<size_t>(map.size, 1)));
    size_t count = 0, below = 0;
    for (size_t position = 0; position < map.size; ++position) // in one order for all
        if (std::ranges::find(noted.all(), map.shards[position].id, &Shard::id) !=
            noted.all().end()) {
            ids[count++] = map.shards[position].id;
            below = position;
        }
    if (count != 0)
        static_cast<void>(lock_shards.run(param(int32{ShareLock}),
                                          param_array(std::span<const int64>(ids, count))));
    return below;
}

/// A split of a lower shard would shift the positions once more before the transaction has
/// committed. It waits for who holds its position; one that has begun is not waited for.
void lock_lower_positions(size_t below) {
    if (!holds_lock(tag_of_position(below), ShareLock))
        return; // this Citus numbers its locks in another way
    for (size_t position = 0; position < below; ++position)
        try_lock(tag_of_position(position), ShareLock);
}

void lock_and_compare() {
    uint64 state;
    do {
        read_map();
        state = map.state;
        compare_placements();
        lock_lower_positions(lock_present_positions());
    } while (present_state() != state); // while a lock was waited for
}

} // namespace

ShardUse shards_of_statement(std::string_view sql) {
    bool is_distributed = false;
    if (is_citus_loaded())
        each_table(sql, [&](std::string_view, Oid relation) {
            is_distributed = is_distributed || is_distributed_by_citus(relation);
        });
    if (!is_distributed)
        return {};
    constexpr std::string_view cast = "::stacksaga.ring_token";
    uint32 parameters = 0;
    for (size_t at = 0; (at = sql.find(cast, at)) != std::string_view::npos; at += cast.size()) {
        const size_t dollar = sql.rfind('$', at);
        uint32 number = 0;
        if (dollar != std::string_view::npos &&
            std::from_chars(sql.data() + dollar + 1, sql.data() + at, number).ptr ==
                sql.data() + at &&
            number >= 1 && number <= 32)
            parameters |= uint32{1} << (number - 1);
    }
    const auto has = [&](std::string_view command) {
        return sql.find(command) != std::string_view::npos;
    };
    return {.token_parameters = parameters,
            .all_shards = parameters == 0,
            .writes = has("INSERT INTO stacksaga.") || has("UPDATE stacksaga.") ||
                      has("DELETE FROM stacksaga.")};
}

void note_shards(const ShardUse &use, std::span<const Param> params) {
    if (XactReadOnly || RecoveryInProgress())
        return;
    begin_notes();
    noted.has_written = noted.has_written || use.writes;
    read_map();
    if (use.all_shards) {
        for (const Shard &shard : map.all())
            note(shard);
        return;
    }
    for (size_t i = 0; i < params.size(); ++i)
        if ((use.token_parameters & uint32{1} << i) != 0 && !params[i].isnull)
            if (const Shard *shard = shard_of(DatumGetInt64(params[i].value)))
                note(*shard);
}

void require_shards_in_place() {
    if (!is_of_this_transaction() || !noted.has_written || noted.since == present_state())
        return;
    if (!is_distributed_by_citus(watched))
        return; // citus_disable() has waited for all who write, or is this transaction's
    PushActiveSnapshot(GetTransactionSnapshot());
    as_owner([] { with_pinned_path([] { with_spi([] { lock_and_compare(); }); }); });
    PopActiveSnapshot();
}

} // namespace stacksaga::pg
