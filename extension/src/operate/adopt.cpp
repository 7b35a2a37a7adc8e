// adopt_ring: moves the work of a ring whose nodes are dead to another ring. At the end, the part
// of reset_instants() that is not SQL.
//
// adopt_ring() is fenced like every change of owner: it locks the slots of the old ring, one after
// the other in ascending order, raises their epochs, and leaves them without an owner.
#include "core/ring/node_state.hpp"
#include "core/ring/ring_settings.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/common/operator_action.hpp"
#include "src/common/wake.hpp"
#include "src/handler/handler_error.hpp"
#include "src/queue/queue_waiters.hpp"
#include "src/ring/fence.hpp"
#include "src/ring/ring_options.hpp"

namespace stacksaga {

namespace {

enum class NodeColumn : uint8_t { node, heartbeat_at, draining };
constinit pg::Select<NodeColumn> list_nodes{
    "SELECT node, heartbeat_at, draining FROM stacksaga.node WHERE ring_id = $1"
    " ORDER BY heartbeat_at DESC"};
constinit pg::Statement disown_slots{
    "UPDATE stacksaga.slot SET owner = NULL, epoch = $2, next_owner = NULL, next_from = NULL"
    " WHERE ring_id = $1"};
constinit pg::Statement lock_sagas{
    "SELECT count(*) FROM (SELECT FROM stacksaga.saga WHERE ring_id = $1 ORDER BY saga_id"
    " FOR NO KEY UPDATE) AS locked",
    pg::Plans::by_statistics};
constinit pg::Statement move_sagas{
    "UPDATE stacksaga.saga SET ring_id = $2, slot = stacksaga.slot(token::bigint, $3)"
    " WHERE ring_id = $1",
    pg::Plans::by_statistics};
// Returns the queues whose waiters should look.
constinit pg::Statement move_work{
    "WITH moved AS ("
    "  UPDATE stacksaga.work SET ring_id = $2, slot = stacksaga.slot(token::bigint, $3)"
    "   WHERE ring_id = $1 RETURNING queue)"
    " SELECT DISTINCT queue FROM moved WHERE queue IS NOT NULL",
    pg::Plans::by_statistics};
constinit pg::Statement write_adoption{
    "INSERT INTO stacksaga.ring_adoption"
    "       (from_ring_id, to_ring_id, epoch, sagas, role, reason, adopted_at,"
    "        on_behalf_of)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"};

struct Adoption {
    std::string_view from_region;
    std::string_view from_cluster;
    std::string_view to_region;
    std::string_view to_cluster;
    std::string_view reason;
};

Adoption adoption_arguments(const pg::Arguments &arguments) {
    Adoption a{arguments.required_text(0, "from_region"),
               arguments.required_text(1, "from_cluster"), arguments.required_text(2, "to_region"),
               arguments.required_text(3, "to_cluster"), required_reason(arguments, 4)};
    check_ring_name(a.from_region, a.from_cluster);
    check_ring_name(a.to_region, a.to_cluster);
    return a;
}

/// SG409 while a node of the ring may still be at work.
void require_dead(const Ring &ring, const Adoption &a, TimestampTz now) {
    const core::RingSettings settings = read_settings(ring);
    const core::NodeTiming timing{settings.suspect_after, settings.dead_after};
    const auto rows = list_nodes.run(pg::param(ring.ring_id));
    for (uint64 i = 0; i < rows.count(); ++i) {
        const core::NodeState state =
            core::node_state(core::age_of(rows.time(i, NodeColumn::heartbeat_at), now),
                             rows.boolean(i, NodeColumn::draining), timing);
        if (state == core::NodeState::dead || state == core::NodeState::removed)
            continue;
        const std::string_view word = core::name_of(state);
        ereport(ERROR,
                (errcode(pg::sg409), errmsg("ring is alive"),
                 errdetail("Node \"%s\" of region \"%s\", cluster \"%s\" is %.*s.",
                           clip(rows.text(i, NodeColumn::node)), clip(a.from_region),
                           clip(a.from_cluster), static_cast<int>(word.size()), word.data()),
                 errhint("Stop its nodes and call stacksaga.leave_ring() for each, or wait until "
                         "they are dead.")));
    }
}

int64 adopt(const Adoption &a) {
    const Ring from = find_ring(a.from_region, a.from_cluster);
    const Ring to = find_ring(a.to_region, a.to_cluster);
    if (from.ring_id == to.ring_id)
        ereport(ERROR, (errcode(pg::sg400), errmsg("a ring cannot adopt itself"),
                        errdetail("Both are region \"%s\", cluster \"%s\".", clip(a.to_region),
                                  clip(a.to_cluster)),
                        errhint("Name the dead ring first, then the ring that adopts it.")));
    const TimestampTz now = pg::clock_now();
    require_dead(from, a, now); // before any lock, so that a refusal disturbs nobody
    ensure_slots(from);
    // Waits for batches that still run in the ring, and keeps workers from beginning others.
    for (int32 slot = 0; slot < from.slots; ++slot)
        lock_slot_exclusively(from.ring_id, slot, true);
    require_dead(from, a, now); // a node may have come while this waited for the locks
    // Under the locks: a worker that locks a slot after the commit reads that it owns it no longer.
    const int64 epoch = raise_epoch(from.ring_id);
    disown_slots.run(pg::param(from.ring_id), pg::param(epoch));
    // Sagas before their work, the order of all who change a saga. So this waits for an answer that
    // is being written, and move_work, which reads afterwards, also moves the rows that it adds.
    lock_sagas.run(pg::param(from.ring_id));
    const auto sagas = static_cast<int64>(
        move_sagas.run(pg::param(from.ring_id), pg::param(to.ring_id), pg::param(to.slots))
            .count());
    pg::Rows queues =
        move_work.run(pg::param(from.ring_id), pg::param(to.ring_id), pg::param(to.slots));
    for (uint64 i = 0; i < queues.count(); ++i)
        wake_waiters_at_commit(to.ring_id, queues.text(i));
    write_adoption.run(pg::param(from.ring_id), pg::param(to.ring_id), pg::param(epoch),
                       pg::param(sagas), pg::param(acting_role()), pg::param(a.reason),
                       pg::param_time(now), on_behalf_of());
    wake_workers_at_commit();
    return sagas;
}

} // namespace

// adopt_ring(from_region, from_cluster, to_region, to_cluster, reason) -> bigint: how many sagas
STACKSAGA_FUNCTION(adopt_ring) {
    refuse_inside_handler("adopt_ring()");
    const Adoption a = adoption_arguments(pg::Arguments(fcinfo));
    PG_RETURN_INT64(pg::with_spi([&] { return adopt(a); }));
}

// record_reset(reason, detail) -> void
STACKSAGA_FUNCTION(record_reset) {
    const pg::Arguments args(fcinfo);
    const std::string_view reason = required_reason(args, 0);
    if (!args.is_null(1))
        pg::with_spi([&] {
            record_action({.action = "reset",
                           .object = "instants",
                           .reason = reason,
                           .detail = args.required_text(1, "detail")});
            wake_workers_at_commit();
        });
    PG_RETURN_VOID();
}

} // namespace stacksaga
