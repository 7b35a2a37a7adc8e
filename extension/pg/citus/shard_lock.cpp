#include "pg/citus/shard_lock.hpp"

#include "pg/citus/citus.hpp"
#include "pg/compat.hpp"
#include "pg/statement/query.hpp"

namespace stacksaga::pg {

namespace {

#define SHARD_OF_TOKEN                                                                             \
    "pg_catalog.get_shard_id_for_distribution_column($1::pg_catalog.regclass,"                     \
    " $2::stacksaga.ring_token)"
constinit Statement find_shard{"SELECT " SHARD_OF_TOKEN, Plans::by_statistics};
constinit Statement lock_shard{"SELECT s.id, pg_catalog.lock_shard_metadata($3, ARRAY[s.id])"
                               "  FROM (SELECT " SHARD_OF_TOKEN " AS id OFFSET 0) AS s",
                               Plans::by_statistics};

/// The shard that was locked last, as long as the lock lasts: all tables that are distributed by
/// token have the same ones.
struct Held {
    int64 token;
    LocalTransactionId transaction;
    SubTransactionId in;
    bool operator==(const Held &) const = default;
};

} // namespace

void hold_shard(Oid table, int64 token) {
    static constinit Held held{};
    if (!is_managed_by_citus(table) || XactReadOnly || RecoveryInProgress())
        return;
    const Held wanted{
        .token = token, .transaction = local_transaction_id(), .in = GetCurrentSubTransactionId()};
    if (held == wanted)
        return;
    const Param relation = param_datum(OIDOID, ObjectIdGetDatum(table)), its_token = param(token);
    int64 locked;
    do { // a shard that was split while its lock was waited for is another one
        locked = lock_shard.run(relation, its_token, param(int32{ShareLock})).int8(0);
    } while (find_shard.run(relation, its_token).int8(0) != locked);
    held = wanted;
}

void hold_shard(const char *table, int64 token) {
    if (is_citus_loaded())
        hold_shard(get_relname_relid(table, get_namespace_oid("stacksaga", false)), token);
}

} // namespace stacksaga::pg
