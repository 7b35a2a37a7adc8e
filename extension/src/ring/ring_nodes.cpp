// ring_nodes: what a coordinator deals slots to. One ring's nodes by their index, where the view
// `nodes` would compute those of all rings: a master of many rings asks for one after the other.
#include "core/node_state.hpp"
#include "core/ring_settings.hpp"

#include "pg/clock.hpp"
#include "pg/function.hpp"
#include "pg/query.hpp"
#include "pg/result.hpp"
#include "pg/scope.hpp"
#include "src/ring/ring_settings.hpp"

namespace stacksaga {

namespace {

constinit pg::Statement list_nodes{"SELECT node, kind, weight, agent, heartbeat_at, draining,"
                                   "       CASE WHEN progress IS NOT NULL THEN checkpoint_at END"
                                   "  FROM stacksaga.node WHERE ring_id = $1"};

/// A silent agent's slots wait for it for as long.
bool is_frozen(core::NodeState state, int64 silent_for, const core::RingSettings &settings) {
    return (state == core::NodeState::suspected || state == core::NodeState::dead) &&
           silent_for < settings.suspect_after + settings.rebalance_delay;
}

void add_nodes(const Ring &ring, pg::ResultSet &result) {
    const core::RingSettings settings = read_settings(ring);
    const core::NodeTiming timing{settings.suspect_after, settings.dead_after};
    const TimestampTz now = pg::clock_now();
    pg::Rows rows = list_nodes.run(pg::param(ring.ring_id));
    for (uint64 i = 0; i < rows.count(); ++i) {
        const int64 silent_for = core::silence(rows.time(i, 4), now);
        const std::optional<TimestampTz> told = rows.optional_time(i, 6);
        const int64 hung_for = told ? core::silence_of_hung(core::silence(*told, now),
                                                            settings.checkpoint_interval, timing)
                                    : 0;
        const core::NodeState state =
            core::node_state(std::max(silent_for, hung_for), rows.boolean(i, 5), timing);
        if (state == core::NodeState::removed)
            continue;
        const bool frozen = rows.text(i, 1) == "agent" && is_frozen(state, silent_for, settings);
        result.add(pg::of(rows.value(i, 0)), pg::of(rows.value(i, 1)),
                   pg::of(PointerGetDatum(pg::make_text(core::name_of(state)))),
                   pg::of(rows.value(i, 2)),
                   rows.is_null(i, 3) ? pg::null() : pg::of(rows.value(i, 3)),
                   pg::of(BoolGetDatum(frozen)));
    }
}

} // namespace

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
