// node_agent, and how workers are dealt to agents.
#include "core/node_state.hpp"
#include "core/ring_settings.hpp"

#include "src/agent.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/function.hpp"
#include "pg/query.hpp"
#include "pg/scope.hpp"
#include "src/limits.hpp"
#include "src/ring_settings.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement find_agents{
    "SELECT FROM stacksaga.node WHERE ring_id = $1 AND kind = 'agent' LIMIT 1"};
constinit pg::Statement lock_agents{"SELECT node FROM stacksaga.node"
                                    " WHERE ring_id = $1 AND kind = 'agent'"
                                    " ORDER BY node COLLATE \"C\" FOR NO KEY UPDATE"};
constinit pg::Statement count_nodes{
    "SELECT a.node, a.heartbeat_at, a.draining"
    "  FROM stacksaga.node a"
    " WHERE a.ring_id = $1 AND a.kind = 'agent'"
    " ORDER BY a.node = $2 DESC NULLS LAST,"
    "          (SELECT count(*) FROM stacksaga.node n WHERE n.ring_id = $1 AND n.agent = a.node),"
    "          a.node COLLATE \"C\""};
constinit pg::Statement read_agent{"SELECT agent FROM stacksaga.node WHERE node = $1"};

} // namespace

std::optional<std::string_view> agent_for_worker(const Ring &ring,
                                                 std::optional<std::string_view> older) {
    if (find_agents.run(pg::param(ring.ring_id)).empty())
        return std::nullopt;
    lock_agents.run(pg::param(ring.ring_id));
    const TimestampTz now = pg::clock_now();
    const core::RingSettings settings = read_settings(ring);
    const core::NodeTiming timing{settings.suspect_after, settings.dead_after};
    pg::Rows rows = count_nodes.run(pg::param(ring.ring_id), pg::param(older));
    for (uint64 i = 0; i < rows.count(); ++i) {
        const int64 silent_for = core::silence(rows.time(i, 1), now);
        if (core::node_state(silent_for, rows.boolean(i, 2), timing) == core::NodeState::active) {
            const std::string_view name = rows.text(i, 0);
            return std::string_view{pnstrdup(name.data(), name.size()), name.size()};
        }
    }
    return std::nullopt;
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
        if (auto name = rows.optional_text(0, 0))
            pg::in_context(memory, [&] { agent = pg::make_text(*name); });
    });
    if (agent == nullptr)
        PG_RETURN_NULL();
    PG_RETURN_TEXT_P(agent);
}

} // namespace stacksaga
