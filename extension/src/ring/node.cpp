// Nodes register, beat, drain and leave.
#include "src/ring/node.hpp"

#include "core/ring/node_state.hpp"
#include "core/ring/ring_settings.hpp"
#include "core/ring/slot_owner.hpp"

#include <cmath>

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "pg/table/relation_change.hpp"
#include "src/common/limits.hpp"
#include "src/ring/agent.hpp"
#include "src/ring/ownership.hpp"
#include "src/ring/ring_options.hpp"
#include "src/ring/slot_hand_over.hpp"
#include "src/ring/slot_rows.hpp"

namespace stacksaga {

namespace {

constexpr double weight_max = 1e6;
// How often a node that leaves waits for a slot in use, 100 ms each. The slots that it has handed
// over stay locked meanwhile.
constexpr int looks_of_leaver = 8;

enum class LockedColumn : uint8_t { ring_id, incarnation, region, cluster, agent };
constinit pg::Select<LockedColumn> lock_node{
    "SELECT n.ring_id, n.incarnation, r.region, r.cluster, n.agent"
    "  FROM stacksaga.node n JOIN stacksaga.ring r ON r.ring_id = n.ring_id"
    " WHERE n.node = $1 FOR UPDATE OF n"};
constinit pg::Statement make_node{
    "INSERT INTO stacksaga.node"
    "       (node, ring_id, incarnation, kind, weight, agent, pid, registered_at, heartbeat_at,"
    "        checkpoint_at)"
    " VALUES ($1, $2, nextval('stacksaga.node_incarnation_seq'), $3, $4, $5, $6, $7, $7, $7)"
    " ON CONFLICT (node) DO NOTHING RETURNING incarnation"};
constinit pg::Statement renew_node{
    "UPDATE stacksaga.node"
    "   SET incarnation = nextval('stacksaga.node_incarnation_seq'), kind = $2, weight = $3,"
    "       agent = $4, pid = $5, draining = false, registered_at = $6, heartbeat_at = $6,"
    "       load = 0, checkpoint_at = $6, progress = NULL"
    " WHERE node = $1 RETURNING incarnation"};
constinit pg::Statement find_agent{
    "SELECT FROM stacksaga.node WHERE ring_id = $1 AND node = $2 AND kind = 'agent'"};
constinit pg::Statement remove_dead{
    "DELETE FROM stacksaga.node WHERE node IN ("
    " SELECT node FROM stacksaga.node"
    "  WHERE ring_id = $1 AND (heartbeat_at <= $2 OR heartbeat_at >= $3)"
    "  FOR UPDATE SKIP LOCKED)"};
// A checkpoint in the future was made before the clock was set back.
#define CHECKPOINT_IS_DUE "progress IS NULL OR checkpoint_at <= $4 OR checkpoint_at > $2"
constinit pg::Statement beat_by_incarnation{
    "UPDATE stacksaga.node"
    "   SET heartbeat_at = $2, load = $3,"
    "       progress = CASE WHEN " CHECKPOINT_IS_DUE
    "                       THEN jsonb_build_object('turns', $5, 'items', $6, 'failures', $7)"
    "                       ELSE progress END,"
    "       checkpoint_at = CASE WHEN " CHECKPOINT_IS_DUE " THEN $2 ELSE checkpoint_at END"
    " WHERE incarnation = $1"};
#undef CHECKPOINT_IS_DUE
// It makes progress: it runs a handler, and notes that it does.
constinit pg::Statement beat_of_busy{
    "UPDATE stacksaga.node SET heartbeat_at = $2, load = 1, checkpoint_at = $2"
    " WHERE incarnation = $1 AND (heartbeat_at <= $3 OR heartbeat_at > $2)"};
enum class BeatColumn : uint8_t { ring_id, draining, checkpoint_at, has_progress };
constinit pg::Select<BeatColumn> beat_by_name{
    "UPDATE stacksaga.node n SET heartbeat_at = $3, load = $4"
    " WHERE node = $1 AND incarnation = $2"
    " RETURNING ring_id, draining, checkpoint_at,"
    "           progress IS NOT NULL AS has_progress"};
constinit pg::Statement find_node{"SELECT incarnation FROM stacksaga.node WHERE node = $1"};
constinit pg::Statement drain{"UPDATE stacksaga.node SET draining = true"
                              " WHERE node = $1 AND incarnation = $2 RETURNING ring_id"};
constinit pg::Statement lock_self{"SELECT ring_id FROM stacksaga.node"
                                  " WHERE node = $1 AND incarnation = $2 FOR UPDATE"};
constinit pg::Statement lock_incarnation{
    "SELECT node FROM stacksaga.node WHERE incarnation = $1 FOR UPDATE"};
constinit pg::Statement remove_node{"DELETE FROM stacksaga.node WHERE incarnation = $1"};
constinit pg::Statement tell_progress{"UPDATE stacksaga.node SET progress = $3, checkpoint_at = $4"
                                      " WHERE node = $1 AND incarnation = $2"};

struct Registration {
    std::string_view node;
    std::string_view kind;
    double weight;
    std::optional<std::string_view> agent;
    std::optional<int32> pid;
};

pg::Param pid_param(const Registration &r) {
    return r.pid ? pg::param(*r.pid) : pg::param_null(INT4OID);
}

/// The incarnation that has held the name until now.
struct Older {
    int64 incarnation;
    std::optional<std::string_view> agent;
};

/// The incarnation that holds the name now, its row locked; nullopt when there is none.
std::optional<Older> lock_older(const Registration &r, int32 ring_id) {
    const auto rows = lock_node.run(pg::param(r.node));
    if (rows.empty())
        return std::nullopt;
    if (rows.int4(0, LockedColumn::ring_id) != ring_id)
        ereport(ERROR,
                (errcode(pg::sg409), errmsg("node belongs to another ring"),
                 errdetail("Node \"%s\" belongs to region \"%s\", cluster \"%s\".", clip(r.node),
                           clip(rows.text(0, LockedColumn::region)),
                           clip(rows.text(0, LockedColumn::cluster))),
                 errhint("Use another name, or call stacksaga.leave_ring() for the older one.")));
    return Older{.incarnation = rows.int8(0, LockedColumn::incarnation),
                 .agent = rows.optional_text(0, LockedColumn::agent)};
}

/// Makes the slots of an older incarnation its successor's to take.
void pass_on_slots(const Ring &ring, int64 older, int64 incarnation, TimestampTz now) {
    if (read_slots_of(ring.ring_id, older).empty())
        return;
    LockedSlots slots(ring.ring_id);
    slots.change(read_slots_of(ring.ring_id, older),
                 [&](SlotRow &slot) { return core::inherit(slot, older, incarnation, now); });
}

int64 register_in_ring(const Ring &ring, const Registration &r) {
    const TimestampTz now = pg::clock_now();
    for (;;) {
        std::optional<Older> older = lock_older(r, ring.ring_id);
        std::optional<std::string_view> assigned_agent = r.agent;
        if (!assigned_agent && r.kind == "worker")
            assigned_agent = agent_for_worker(ring, older ? older->agent : std::nullopt);
        const pg::Param agent = pg::param(assigned_agent);
        if (older) {
            pg::Rows rows =
                renew_node.run(pg::param(r.node), pg::param(r.kind), pg::param(r.weight), agent,
                               pid_param(r), pg::param_time(now));
            const int64 incarnation = rows.int8(0);
            ensure_slots(ring);
            pass_on_slots(ring, older->incarnation, incarnation, now);
            return incarnation;
        }
        pg::Rows rows =
            make_node.run(pg::param(r.node), pg::param(ring.ring_id), pg::param(r.kind),
                          pg::param(r.weight), agent, pid_param(r), pg::param_time(now));
        if (!rows.empty()) {
            const int64 incarnation = rows.int8(0);
            pg::announce_change("node"); // sessions remember that there is none
            ensure_slots(ring);
            return incarnation;
        }
        CHECK_FOR_INTERRUPTS(); // another session has just made it: its row is there now
    }
}

[[noreturn]] void raise_not_current(std::string_view node, int64 incarnation) {
    pg::Rows rows = find_node.run(pg::param(node));
    if (rows.empty())
        ereport(ERROR,
                (errcode(pg::sg404), errmsg("node does not exist"),
                 errdetail("There is no node \"%s\"; a node that is dead for long is removed.",
                           clip(node)),
                 errhint("Register it with stacksaga.register_node().")));
    ereport(ERROR,
            (errcode(pg::sg412), errmsg("node was superseded"),
             errdetail("Node \"%s\" is incarnation %lld, not %lld.", clip(node),
                       static_cast<long long>(rows.int8(0)), static_cast<long long>(incarnation)),
             errhint("Stop the older holder of the name; only stacksaga.register_node() gives a "
                     "new incarnation.")));
}

void check_load(double load) {
    if (!std::isfinite(load) || load < 0)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"load\" is out of range"),
                        errdetail("The value is %g.", load),
                        errhint("Use a finite number that is not negative.")));
}

/// The node's row is locked.
void leave(const NodeIdentity &node) {
    hand_over(ring_of_id(node.ring_id), node, looks_of_leaver);
    remove_node.run(pg::param(node.incarnation));
}

struct NodeArguments {
    std::string_view node;
    int64 incarnation;
};

NodeArguments node_arguments(const pg::Arguments &arguments) {
    NodeArguments result{arguments.required_text(0, "node"),
                         arguments.required_int8(1, "incarnation")};
    check_name(result.node, "node");
    return result;
}

/// As node_name() of a worker makes them.
bool is_worker_name(std::string_view name) {
    constexpr std::string_view prefix = "worker-";
    if (!name.starts_with(prefix))
        return false;
    const std::string_view rest = name.substr(prefix.size(), name.find('@') - prefix.size());
    return !rest.empty() && rest.find_first_not_of("0123456789") == std::string_view::npos;
}

Registration registration_arguments(const pg::Arguments &arguments) {
    Registration r{};
    r.node = arguments.required_text(0, "node");
    check_name(r.node, "node");
    if (is_worker_name(r.node))
        ereport(ERROR, (errcode(pg::sg400),
                        errmsg("\"%s\" is the name of a background worker", clip(r.node)),
                        errdetail("Workers of this server register as worker-N and "
                                  "worker-N@REGION/CLUSTER, and would be fenced."),
                        errhint("Choose another name for the node.")));
    r.kind = arguments.required_text(3, "kind");
    if (r.kind != "worker" && r.kind != "standard" && r.kind != "agent")
        ereport(ERROR, (errcode(pg::sg400), errmsg("\"%s\" is not a kind of node", clip(r.kind)),
                        errdetail("Node \"%s\" is not registered.", clip(r.node)),
                        errhint("Use worker, standard or agent.")));
    arguments.require(4, "weight");
    r.weight = DatumGetFloat8(arguments.datum(4));
    if (!std::isfinite(r.weight) || r.weight <= 0 || r.weight > weight_max)
        ereport(ERROR, (errcode(pg::sg400), errmsg("argument \"weight\" is out of range"),
                        errdetail("The value is %g.", r.weight),
                        errhint("Use a number greater than 0 and at most %g.", weight_max)));
    r.agent = arguments.optional_text(5);
    return r;
}

int64 register_node(const pg::Arguments &arguments) {
    Registration r = registration_arguments(arguments);
    std::string_view region = arguments.required_text(1, "region");
    std::string_view cluster = arguments.required_text(2, "cluster");
    check_ring_name(region, cluster);
    const Ring ring = find_ring(region, cluster);
    if (r.agent && find_agent.run(pg::param(ring.ring_id), pg::param(*r.agent)).empty())
        ereport(ERROR, (errcode(pg::sg404), errmsg("agent does not exist"),
                        errdetail("The ring has no node \"%s\" of kind agent.", clip(*r.agent)),
                        errhint("Register the agent first, or leave it out.")));
    remove_dead_nodes(ring);
    const int64 incarnation = register_in_ring(ring, r);
    settle_ownership({ring.ring_id, incarnation}, false);
    return incarnation;
}

void heartbeat_node(const pg::Arguments &arguments, pg::ResultSet &result) {
    NodeArguments node = node_arguments(arguments);
    arguments.require(2, "load");
    const double load = DatumGetFloat8(arguments.datum(2));
    check_load(load);
    const TimestampTz now = pg::clock_now();
    const auto rows = beat_by_name.run(pg::param(node.node), pg::param(node.incarnation),
                                       pg::param_time(now), pg::param(load));
    if (rows.empty())
        raise_not_current(node.node, node.incarnation);
    const Ring ring = ring_of_id(rows.int4(0, BeatColumn::ring_id));
    const bool draining = rows.boolean(0, BeatColumn::draining);
    const core::RingSettings settings = read_settings(ring);
    const core::NodeTiming timing{settings.suspect_after, settings.dead_after};
    const int64 report_age = core::age_of(rows.time(0, BeatColumn::checkpoint_at), now);
    const bool checkpoint_is_due = report_age >= settings.checkpoint_interval;
    const int64 hung = rows.boolean(0, BeatColumn::has_progress)
                           ? core::hung_for(report_age, settings.checkpoint_interval)
                           : 0;
    settle_ownership({ring.ring_id, node.incarnation}, false);
    const core::NodeState state = core::node_state(0, draining, timing, hung);
    result.add(pg::of(PointerGetDatum(pg::make_text(core::name_of(state)))),
               pg::of(Int64GetDatum(ring_epoch(ring.ring_id))),
               pg::of(BoolGetDatum(checkpoint_is_due)));
}

} // namespace

void remove_dead_nodes(const Ring &ring) {
    const TimestampTz now = pg::clock_now();
    const core::RingSettings settings = read_settings(ring);
    const core::NodeTiming timing{settings.suspect_after, settings.dead_after};
    remove_dead.run(pg::param(ring.ring_id),
                    pg::param_time(pg::time_plus(now, -timing.removed_after())),
                    pg::param_time(pg::time_plus(now, timing.removed_after())));
}

int64 register_worker_node(int32 ring_id, std::string_view name, int32 pid) {
    return pg::with_spi([&] {
        const Ring ring = ring_of_id(ring_id);
        remove_dead_nodes(ring);
        return register_in_ring(
            ring, {.node = name, .kind = "worker", .weight = 1, .agent = std::nullopt, .pid = pid});
    });
}

void leave_ring(const NodeIdentity &node) {
    pg::with_spi([&] {
        if (!lock_incarnation.run(pg::param(node.incarnation)).empty())
            leave(node);
    });
}

void beat(const NodeIdentity &node, double load, const WorkerProgress &progress) {
    const uint64 rows = pg::with_spi([&] {
        const TimestampTz now = pg::clock_now();
        const int64 interval = read_settings(ring_of_id(node.ring_id)).checkpoint_interval;
        return beat_by_incarnation
            .run(pg::param(node.incarnation), pg::param_time(now), pg::param(load),
                 pg::param_time(pg::time_plus(now, -interval)), pg::param(progress.turns),
                 pg::param(progress.items), pg::param(progress.failures))
            .count();
    });
    if (rows == 0)
        ereport(ERROR, (errcode(pg::sg412), errmsg("worker was superseded"),
                        errdetail("Its incarnation %lld is no longer registered.",
                                  static_cast<long long>(node.incarnation)),
                        errhint("It registers again by itself.")));
}

void beat_for(const NodeIdentity &node) {
    pg::with_spi([&] {
        const TimestampTz now = pg::clock_now();
        const int64 interval = read_settings(ring_of_id(node.ring_id)).heartbeat_interval;
        beat_of_busy.touch(pg::param(node.incarnation), pg::param_time(now),
                           pg::param_time(pg::time_plus(now, -interval)));
    });
}

// register_node(node, region, cluster, kind, weight, agent) -> bigint
STACKSAGA_FUNCTION(register_node) {
    pg::Arguments arguments(fcinfo);
    PG_RETURN_INT64(pg::with_spi([&] { return register_node(arguments); }));
}

// heartbeat_node(node, incarnation, load) -> (state, epoch, checkpoint_requested)
STACKSAGA_FUNCTION(heartbeat_node) {
    pg::Arguments arguments(fcinfo);
    pg::ResultSet result(fcinfo);
    pg::with_spi([&] { heartbeat_node(arguments, result); });
    return pg::ResultSet::finish();
}

// acknowledge_checkpoint(node, incarnation, progress) -> void
STACKSAGA_FUNCTION(acknowledge_checkpoint) {
    pg::Arguments arguments(fcinfo);
    NodeArguments node = node_arguments(arguments);
    arguments.require(2, "progress");
    check_payload(arguments.datum(2), "progress");
    pg::with_spi([&] {
        pg::Rows rows = tell_progress.run(pg::param(node.node), pg::param(node.incarnation),
                                          pg::param_datum(JSONBOID, arguments.datum(2)),
                                          pg::param_time(pg::clock_now()));
        if (rows.count() == 0)
            raise_not_current(node.node, node.incarnation);
    });
    PG_RETURN_VOID();
}

// drain_node(node, incarnation) -> void: slots in use are handed over at the next heartbeat.
STACKSAGA_FUNCTION(drain_node) {
    NodeArguments node = node_arguments(pg::Arguments(fcinfo));
    pg::with_spi([&] {
        pg::Rows rows = drain.run(pg::param(node.node), pg::param(node.incarnation));
        if (rows.empty())
            raise_not_current(node.node, node.incarnation);
        const int32 ring_id = rows.int4(0);
        hand_over(ring_of_id(ring_id), {ring_id, node.incarnation}, 1);
    });
    PG_RETURN_VOID();
}

// leave_ring(node, incarnation) -> void: it may finish what it has begun, since the fence keeps
// other nodes out until then.
STACKSAGA_FUNCTION(leave_ring) {
    NodeArguments node = node_arguments(pg::Arguments(fcinfo));
    pg::with_spi([&] {
        pg::Rows rows = lock_self.run(pg::param(node.node), pg::param(node.incarnation));
        if (rows.empty())
            raise_not_current(node.node, node.incarnation);
        leave({rows.int4(0), node.incarnation});
    });
    PG_RETURN_VOID();
}

// node_state(heartbeat_at, reported_at, at, draining, checkpoint_interval, suspect_after,
// dead_after)
// -> text
STACKSAGA_FUNCTION(node_state) {
    const TimestampTz at = PG_GETARG_TIMESTAMPTZ(2);
    const int64 heartbeat_age = core::age_of(PG_GETARG_TIMESTAMPTZ(0), at);
    const int64 hung =
        core::hung_for(core::age_of(PG_GETARG_TIMESTAMPTZ(1), at),
                       pg::interval_microseconds(PG_GETARG_DATUM(4), "checkpoint_interval", false));
    const core::NodeTiming timing{
        pg::interval_microseconds(PG_GETARG_DATUM(5), "suspect_after", false),
        pg::interval_microseconds(PG_GETARG_DATUM(6), "dead_after", false)};
    const core::NodeState state = core::node_state(heartbeat_age, PG_GETARG_BOOL(3), timing, hung);
    PG_RETURN_TEXT_P(pg::make_text(core::name_of(state)));
}

// node_transitions() -> (from_state, to_state, sentence)
STACKSAGA_FUNCTION(node_transitions) {
    pg::ResultSet result(fcinfo);
    for (const core::NodeTransition &t : core::node_transitions)
        result.add(pg::of(PointerGetDatum(pg::make_text(core::name_of(t.from)))),
                   pg::of(PointerGetDatum(pg::make_text(core::name_of(t.to)))),
                   pg::of(PointerGetDatum(pg::make_text(t.sentence))));
    return pg::ResultSet::finish();
}

} // namespace stacksaga
