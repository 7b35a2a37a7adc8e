#include "src/ring/ring_nodes.hpp"

#include "core/ring/assignment.hpp"
#include "core/ring/members.hpp"
#include "core/ring/node_state.hpp"
#include "core/ring/ring_settings.hpp"
#include "core/ring/slot_owner.hpp"

#include "pg/clock.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/ring/ring_options.hpp"

namespace stacksaga {

namespace {

#define LIST_NODES                                                                                    \
    "SELECT node, kind, weight, agent, heartbeat_at, draining,"                                       \
    "       CASE WHEN progress IS NOT NULL THEN checkpoint_at END AS checkpoint_at, incarnation, pid" \
    "  FROM stacksaga.node WHERE ring_id = $1 ORDER BY node COLLATE \"C\""
enum class NodeColumn : uint8_t {
    node,
    kind,
    weight,
    agent,
    heartbeat_at,
    draining,
    checkpoint_at,
    incarnation,
    pid,
};
constinit pg::Select<NodeColumn> list_nodes{LIST_NODES};
constinit pg::Select<NodeColumn> list_kept_nodes{LIST_NODES " FOR KEY SHARE SKIP LOCKED"};
#undef LIST_NODES

core::NodeKind kind_of(std::string_view kind) {
    return kind == "worker"     ? core::NodeKind::worker
           : kind == "standard" ? core::NodeKind::standard
           : kind == "agent"    ? core::NodeKind::agent
                                : core::NodeKind::unknown;
}

std::string_view name_of(core::NodeKind kind) {
    return kind == core::NodeKind::worker     ? "worker"
           : kind == core::NodeKind::standard ? "standard"
                                              : "agent";
}

/// A background worker that ended is known at once; a process of that number in another database is
/// not it.
bool is_running(int32 pid) {
    PGPROC *process = BackendPidGetProc(pid);
    return process != nullptr && process->databaseId == MyDatabaseId;
}

core::RingNode node_of(const pg::RowsOf<NodeColumn> &rows, uint64 i, int64 heartbeat_age,
                       TimestampTz now, const core::RingSettings &settings) {
    const core::NodeTiming timing{settings.suspect_after, settings.dead_after};
    const std::optional<TimestampTz> told = rows.optional_time(i, NodeColumn::checkpoint_at);
    const int64 hung =
        told ? core::hung_for(core::age_of(*told, now), settings.checkpoint_interval) : 0;
    core::RingNode node{
        .name = rows.text(i, NodeColumn::node),
        .kind = kind_of(rows.text(i, NodeColumn::kind)),
        .state =
            core::node_state(heartbeat_age, rows.boolean(i, NodeColumn::draining), timing, hung),
        .weight = rows.float8(i, NodeColumn::weight),
        .agent = rows.optional_text(i, NodeColumn::agent).value_or(std::string_view{})};
    node.frozen = node.kind == core::NodeKind::agent &&
                  core::is_frozen(node.state, heartbeat_age, timing, settings.rebalance_delay);
    return node;
}

void add_nodes(const Ring &ring, pg::ResultSet &result) {
    const RingNodes all = read_ring_nodes(ring, pg::clock_now());
    for (const core::RingNode &node : all.nodes) {
        if (node.state == core::NodeState::removed)
            continue;
        result.add(pg::of(PointerGetDatum(pg::make_text(node.name))),
                   pg::of(PointerGetDatum(pg::make_text(name_of(node.kind)))),
                   pg::of(PointerGetDatum(pg::make_text(core::name_of(node.state)))),
                   pg::of(Float8GetDatum(node.weight)),
                   node.agent.empty() ? pg::null()
                                      : pg::of(PointerGetDatum(pg::make_text(node.agent))),
                   pg::of(BoolGetDatum(node.frozen)));
    }
}

} // namespace

int32 RingNodes::find(core::Incarnation incarnation) const {
    const auto incarnation_at = [this](int32 place) {
        return facts[static_cast<size_t>(place)].incarnation;
    };
    const auto found =
        std::ranges::lower_bound(by_incarnation, incarnation, std::ranges::less{}, incarnation_at);
    return found != by_incarnation.end() && incarnation_at(*found) == incarnation ? *found
                                                                                  : core::nobody;
}

int32 RingNodes::find(std::string_view name) const {
    const auto found =
        std::ranges::lower_bound(nodes, name, std::ranges::less{}, &core::RingNode::name);
    return found != nodes.end() && found->name == name ? static_cast<int32>(found - nodes.begin())
                                                       : core::nobody;
}

core::Relation RingNodes::relation(core::Incarnation holder, int32 place) const {
    const int32 found = find(holder);
    if (found == core::nobody)
        return core::Relation::none;
    if (found == place)
        return core::Relation::itself;
    const std::string_view agent = nodes[static_cast<size_t>(found)].agent;
    return !agent.empty() && agent == nodes[static_cast<size_t>(place)].name
               ? core::Relation::its_worker
               : core::Relation::none;
}

RingNodes read_ring_nodes(const Ring &ring, TimestampTz now, bool keep) {
    const core::RingSettings settings = read_settings(ring);
    const auto rows = (keep ? list_kept_nodes : list_nodes).run(pg::param(ring.ring_id));
    const auto count = static_cast<size_t>(rows.count());
    RingNodes result{
        .nodes = {static_cast<core::RingNode *>(palloc(sizeof(core::RingNode) * (count + 1))),
                  count},
        .facts = {static_cast<NodeFacts *>(palloc(sizeof(NodeFacts) * (count + 1))), count},
        .by_incarnation = {static_cast<int32 *>(palloc(sizeof(int32) * (count + 1))), count}};
    for (size_t i = 0; i < count; ++i) {
        const int64 heartbeat_age = core::age_of(rows.time(i, NodeColumn::heartbeat_at), now);
        const bool is_process = !rows.is_null(i, NodeColumn::pid);
        result.nodes[i] = node_of(rows, i, heartbeat_age, now, settings);
        result.facts[i] = {.incarnation = rows.int8(i, NodeColumn::incarnation),
                           .heartbeat_age = heartbeat_age,
                           .is_process = is_process,
                           .draining = rows.boolean(i, NodeColumn::draining),
                           .may_run = !is_process || is_running(rows.int4(i, NodeColumn::pid))};
        result.by_incarnation[i] = static_cast<int32>(i);
    }
    std::ranges::sort(result.by_incarnation, std::ranges::less{}, [&](int32 place) {
        return result.facts[static_cast<size_t>(place)].incarnation;
    });
    return result;
}

// ring_nodes(region, cluster) -> (node, kind, state, weight, agent, frozen)
STACKSAGA_FUNCTION(ring_nodes) {
    pg::Arguments arguments(fcinfo);
    std::string_view region = arguments.required_text(0, "region");
    std::string_view cluster = arguments.required_text(1, "cluster");
    check_ring_name(region, cluster);
    pg::ResultSet result(fcinfo);
    pg::with_spi([&] { add_nodes(find_ring(region, cluster), result); });
    return pg::ResultSet::finish();
}

} // namespace stacksaga
