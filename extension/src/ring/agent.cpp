// node_agent and agent_slots: which agent a worker is assigned to, and which slots agents assign.
#include "src/ring/agent.hpp"

#include "core/ring/assignment.hpp"
#include "core/ring/members.hpp"
#include "core/ring/node_state.hpp"
#include "core/ring/ring_settings.hpp"
#include "core/ring/slot_owner.hpp"
#include "core/ring/slots.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/ring/ring_nodes.hpp"
#include "src/ring/ring_options.hpp"
#include "src/ring/slot_rows.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement find_agents{
    "SELECT FROM stacksaga.node WHERE ring_id = $1 AND kind = 'agent' LIMIT 1"};
constinit pg::Statement lock_agents{"SELECT node FROM stacksaga.node"
                                    " WHERE ring_id = $1 AND kind = 'agent'"
                                    " ORDER BY node COLLATE \"C\" FOR NO KEY UPDATE"};
constinit pg::Statement read_agent{"SELECT agent FROM stacksaga.node WHERE node = $1"};

enum class AgentColumn : uint8_t { ring_id, incarnation };
constinit pg::Select<AgentColumn> find_agent{
    "SELECT ring_id, incarnation FROM stacksaga.node WHERE node = $1 AND kind = 'agent'"};

} // namespace

std::span<const AgentSlot> slots_of_agent(const Ring &ring, int64 incarnation,
                                          TimestampTz window_start) {
    const RingNodes all = read_ring_nodes(ring, pg::clock_now());
    const int32 agent = all.find(incarnation);
    const std::span<SlotRow> slots = read_slots(ring.ring_id);
    auto *list = static_cast<AgentSlot *>(palloc(sizeof(AgentSlot) * (slots.size() + 1)));
    size_t count = 0;
    for (const SlotRow &slot : slots) {
        const core::Relation owner = all.relation(slot.owner, agent);
        const core::Relation next = all.relation(slot.next_owner, agent);
        if (!core::is_assigned_to_agent(slot, window_start, owner, next))
            continue;
        const int32 worker = owner == core::Relation::its_worker  ? all.find(slot.owner)
                             : next == core::Relation::its_worker ? all.find(slot.next_owner)
                                                                  : core::nobody;
        list[count++] = {slot.slot, worker == core::nobody
                                        ? std::string_view{}
                                        : all.nodes[static_cast<size_t>(worker)].name};
    }
    return {list, count};
}

std::optional<std::string_view> agent_for_worker(const Ring &ring,
                                                 std::optional<std::string_view> older) {
    if (find_agents.run(pg::param(ring.ring_id)).empty())
        return std::nullopt;
    lock_agents.run(pg::param(ring.ring_id));
    const RingNodes all = read_ring_nodes(ring, pg::clock_now());
    auto *agents =
        static_cast<core::AgentChoice *>(palloc(sizeof(core::AgentChoice) * all.nodes.size()));
    size_t count = 0;
    for (const core::RingNode &agent : all.nodes) {
        if (agent.kind != core::NodeKind::agent)
            continue;
        const auto workers = std::ranges::count(all.nodes, agent.name, &core::RingNode::agent);
        agents[count++] = {.name = agent.name, .state = agent.state, .workers = workers};
    }
    const int32 chosen = core::choose_agent({agents, count}, older.value_or(std::string_view{}));
    if (chosen == core::nobody)
        return std::nullopt;
    const std::string_view name = agents[chosen].name;
    return std::string_view{pnstrdup(name.data(), name.size()), name.size()};
}

// node_agent(node) -> text
STACKSAGA_FUNCTION(node_agent) {
    std::string_view node = pg::Arguments(fcinfo).required_text(0, "node");
    check_name(node, "node");
    text *agent = nullptr;
    MemoryContext memory = CurrentMemoryContext;
    pg::with_spi([&] {
        pg::Rows rows = read_agent.run(pg::param(node));
        if (rows.empty())
            ereport(ERROR, (errcode(pg::sg404), errmsg("node does not exist"),
                            errdetail("There is no node \"%s\".", clip(node)),
                            errhint("Register it with stacksaga.register_node().")));
        if (auto name = rows.optional_text(0))
            pg::in_context(memory, [&] { agent = pg::make_text(*name); });
    });
    if (agent == nullptr)
        PG_RETURN_NULL();
    PG_RETURN_TEXT_P(agent);
}

namespace {

void add_agent_slots(std::string_view agent, TimestampTz window_start, pg::ResultSet &result) {
    const auto found = find_agent.run(pg::param(agent));
    if (found.empty())
        ereport(ERROR, (errcode(pg::sg404), errmsg("agent does not exist"),
                        errdetail("There is no node \"%s\" of kind agent.", clip(agent)),
                        errhint("Register it with stacksaga.register_node().")));
    const Ring ring = ring_of_id(found.int4(0, AgentColumn::ring_id));
    for (const AgentSlot &assigned :
         slots_of_agent(ring, found.int8(0, AgentColumn::incarnation), window_start)) {
        const core::Range range = core::slot_range(assigned.slot, ring.slots);
        result.add(pg::of(Int32GetDatum(assigned.slot)), pg::of(Int64GetDatum(range.first.value())),
                   pg::of(Int64GetDatum(range.last.value())),
                   assigned.worker.empty()
                       ? pg::null()
                       : pg::of(PointerGetDatum(pg::make_text(assigned.worker))));
    }
}

} // namespace

// agent_slots(agent, window_start) -> (slot, range_start, range_end, node)
STACKSAGA_FUNCTION(agent_slots) {
    pg::Arguments arguments(fcinfo);
    std::string_view agent = arguments.required_text(0, "agent");
    check_name(agent, "agent");
    arguments.require(1, "window_start");
    const TimestampTz window_start = DatumGetTimestampTz(arguments.datum(1));
    pg::ResultSet result(fcinfo);
    pg::with_spi([&] { add_agent_slots(agent, window_start, result); });
    return pg::ResultSet::finish();
}

} // namespace stacksaga
