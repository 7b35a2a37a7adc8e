// publish_window: what a window proposes.
//
// A window is one row of token_window, whose primary key makes the first publisher win, and a
// proposal in the row of each slot that is to get another owner (core/ring/slot_owner.hpp); other
// slots are not written.
#include "core/ring/assignment.hpp"
#include "core/ring/members.hpp"
#include "core/ring/ring_settings.hpp"
#include "core/ring/slot_owner.hpp"
#include "core/ring/slots.hpp"
#include "core/ring/token.hpp"
#include "core/ring/window.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/ring/agent.hpp"
#include "src/ring/node.hpp"
#include "src/ring/ring_nodes.hpp"
#include "src/ring/ring_options.hpp"
#include "src/ring/slot_rows.hpp"

namespace stacksaga {

namespace {

constexpr int64 windows_kept = 1000;

constinit pg::Statement find_window{"SELECT FROM stacksaga.token_window"
                                    " WHERE ring_id = $1 AND window_start = $2 AND agent = $3"};
constinit pg::Statement make_window{
    "INSERT INTO stacksaga.token_window"
    "       (ring_id, window_start, agent, window_end, epoch, published_at, publisher)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING RETURNING epoch"};
constinit pg::Statement forget_windows{
    "DELETE FROM stacksaga.token_window WHERE ring_id = $1 AND window_end < $2"};
// Reads the ring's nodes once, not for each range or slot.
enum class NamedColumn : uint8_t { node, kind, agent };
constinit pg::Select<NamedColumn> resolve_nodes{
    "WITH member AS MATERIALIZED ("
    "    SELECT node, kind, agent FROM stacksaga.node WHERE ring_id = $1)"
    "SELECT named.node, n.kind, n.agent"
    "  FROM unnest($2) WITH ORDINALITY AS named(node, place)"
    "  LEFT JOIN member n ON n.node = named.node"
    " ORDER BY named.place"};
constinit pg::Statement find_agent{"SELECT incarnation FROM stacksaga.node"
                                   " WHERE ring_id = $1 AND node = $2 AND kind = 'agent'"};

struct Publication {
    TimestampTz window_start;
    TimestampTz window_end;
    std::string_view publisher;
    std::string_view agent; ///< empty: none
    ArrayType *nodes;
    int count; ///< of ranges
    const core::Range *ranges;
};

/// A one-dimensional array without NULLs and its length; SG400 else.
ArrayType *array_argument(const pg::Arguments &arguments, int i, const char *name, int *count) {
    arguments.require(i, name);
    ArrayType *array = DatumGetArrayTypeP(arguments.datum(i));
    const char *fault = nullptr;
    if (ARR_NDIM(array) == 0)
        fault = "It is empty.";
    else if (ARR_NDIM(array) > 1)
        fault = "It has more than one dimension.";
    else if (array_contains_nulls(array))
        fault = "It contains a null.";
    if (fault != nullptr)
        ereport(ERROR,
                (errcode(pg::sg400), errmsg("argument \"%s\" is not a list", name),
                 errdetail("%s", fault), errhint("Pass one value for each range, without nulls.")));
    *count = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
    return array;
}

const core::Range *range_arguments(const pg::Arguments &arguments, int count) {
    int starts_count = 0, ends_count = 0;
    ArrayType *starts = array_argument(arguments, 4, "range_starts", &starts_count);
    ArrayType *ends = array_argument(arguments, 5, "range_ends", &ends_count);
    if (starts_count != count || ends_count != count)
        ereport(ERROR, (errcode(pg::sg400), errmsg("arrays differ in length"),
                        errdetail("There are %d nodes, %d range starts and %d range ends.", count,
                                  starts_count, ends_count),
                        errhint("Pass one node, one start and one end for each range.")));
    auto *ranges =
        static_cast<core::Range *>(palloc(sizeof(core::Range) * static_cast<size_t>(count)));
    const auto *start = reinterpret_cast<const int64 *>(ARR_DATA_PTR(starts));
    const auto *end = reinterpret_cast<const int64 *>(ARR_DATA_PTR(ends));
    for (int i = 0; i < count; ++i)
        ranges[i] = {core::Token::from_int64(start[i]), core::Token::from_int64(end[i])};
    return ranges;
}

/// SG400 unless a window of the ring starts there that is not over.
TimestampTz window_end_of(const Ring &ring, TimestampTz start, TimestampTz now) {
    using core::window::Acceptance;
    const int64 length = read_settings(ring).window_length;
    const Acceptance acceptance =
        core::window::accept(start, length, now, core::ring_interval_max_us);
    if (TIMESTAMP_NOT_FINITE(start) || acceptance == Acceptance::not_aligned)
        ereport(ERROR,
                (errcode(pg::sg400), errmsg("no window of the ring starts at window_start"),
                 errdetail("window_start is %s; windows are %lld microseconds long, counted from "
                           "2000-01-01 00:00 UTC.",
                           timestamptz_to_str(start), static_cast<long long>(length)),
                 errhint("The next window starts at %s.",
                         timestamptz_to_str(core::window::next_start(now, length)))));
    if (acceptance == Acceptance::over)
        ereport(ERROR,
                (errcode(pg::sg400), errmsg("window is over"),
                 errdetail("It started at %s, and it is past its end.", timestamptz_to_str(start)),
                 errhint("The next window starts at %s.",
                         timestamptz_to_str(core::window::next_start(now, length)))));
    if (acceptance == Acceptance::too_far_ahead)
        ereport(ERROR, (errcode(pg::sg400), errmsg("window lies too far ahead"),
                        errdetail("It would start at %s.", timestamptz_to_str(start)),
                        errhint("The next window starts at %s.",
                                timestamptz_to_str(core::window::next_start(now, length)))));
    return pg::time_plus(start, length);
}

/// The agent's incarnation; SG404 when the ring has no such agent.
int64 agent_of(const Ring &ring, std::string_view agent) {
    pg::Rows rows = find_agent.run(pg::param(ring.ring_id), pg::param(agent));
    if (rows.empty())
        ereport(ERROR, (errcode(pg::sg404), errmsg("agent does not exist"),
                        errdetail("The ring has no node \"%s\" of kind agent.", clip(agent)),
                        errhint("Publish without an agent, or register it first.")));
    return rows.int8(0);
}

/// The name of the node for each range. SG404 for a node that the ring does not have, SG400 for one
/// that takes no ranges.
const std::string_view *check_nodes(const Ring &ring, const Publication &p) {
    const auto rows = resolve_nodes.run(pg::param(ring.ring_id),
                                        pg::param_datum(TEXTARRAYOID, PointerGetDatum(p.nodes)));
    auto *names = static_cast<std::string_view *>(
        palloc(sizeof(std::string_view) * static_cast<size_t>(p.count)));
    for (uint64 i = 0; i < rows.count(); ++i) {
        names[i] = rows.text(i, NamedColumn::node);
        if (rows.is_null(i, NamedColumn::kind))
            ereport(ERROR, (errcode(pg::sg404), errmsg("node does not exist"),
                            errdetail("The ring has no node \"%s\".", clip(names[i])),
                            errhint("Register it with stacksaga.register_node().")));
        const bool is_agents =
            rows.optional_text(i, NamedColumn::agent) == p.agent && !p.agent.empty();
        if (rows.text(i, NamedColumn::kind) == "standard" || (!p.agent.empty() && !is_agents))
            ereport(
                ERROR,
                (errcode(pg::sg400),
                 errmsg("node \"%s\" cannot be assigned ranges by this publisher", clip(names[i])),
                 errdetail("It is of kind %s, its agent is %s.",
                           pnstrdup(rows.text(i, NamedColumn::kind).data(),
                                    rows.text(i, NamedColumn::kind).size()),
                           rows.is_null(i, NamedColumn::agent)
                               ? "nobody"
                               : clip(rows.text(i, NamedColumn::agent))),
                 errhint("Assign ranges to workers or agents; an agent assigns to its own "
                         "workers.")));
    }
    return names;
}

/// The slots to assign: all, or those that the agent was assigned in this window.
int32 *slots_to_assign(const Ring &ring, const Publication &p) {
    auto *table = static_cast<int32 *>(palloc(sizeof(int32) * static_cast<size_t>(ring.slots)));
    std::fill(table, table + ring.slots,
              p.agent.empty() ? core::slot_is_free : core::slot_not_ours);
    if (p.agent.empty())
        return table;
    for (const AgentSlot &slot : slots_of_agent(ring, agent_of(ring, p.agent), p.window_start))
        table[slot.slot] = core::slot_is_free;
    return table;
}

/// Which range holds each slot; SG416 when they do not tile the slots to assign.
const int32 *assignment_of(const Ring &ring, const Publication &p) {
    int32 *table = slots_to_assign(ring, p);
    const core::TilingFault fault = core::cut_at_slots({p.ranges, static_cast<size_t>(p.count)},
                                                       {table, static_cast<size_t>(ring.slots)});
    if (fault.rule == core::TilingRule::ok)
        return table;
    const std::string_view rule = core::describe(fault.rule);
    const char *which =
        fault.range < 0 ? ""
        : fault.other < 0
            ? psprintf(" (range %lld)", static_cast<long long>(fault.range + 1))
            : psprintf(" (ranges %lld and %lld)", static_cast<long long>(fault.other + 1),
                       static_cast<long long>(fault.range + 1));
    ereport(ERROR, (errcode(pg::sg416), errmsg("ranges do not tile the ring"),
                    errdetail("At token %lld, %.*s%s.", static_cast<long long>(fault.where.value()),
                              static_cast<int>(rule.size()), rule.data(), which),
                    errhint("Cut ranges where stacksaga.ring_slots() does, each slot in exactly "
                            "one range.")));
}

/// Gives each slot to the node of its range, `assigned[slot]`; none where that is negative. A
/// draining worker hands its slots over, so a window whose publisher has not seen that changes
/// nothing for it. The nodes are read under the lock: one that registered again meanwhile gets its
/// slots as what it is now.
void propose(const Ring &ring, const Publication &p, const int32 *assigned,
             const std::string_view *nodes, LockedSlots &slots) {
    const RingNodes all = read_ring_nodes(ring, pg::clock_now());
    slots.change(read_slots(ring.ring_id), [&](SlotRow &slot) {
        const int32 range = assigned[slot.slot];
        const int32 node = range < 0 ? core::nobody : all.find(nodes[range]);
        if (node == core::nobody)
            return false;
        const auto place = static_cast<size_t>(node);
        const bool is_worker = all.nodes[place].kind == core::NodeKind::worker;
        if (!core::may_be_proposed(is_worker, all.facts[place].draining))
            return false;
        return core::propose(slot, all.facts[place].incarnation, p.window_start,
                             all.relation(slot.owner, node), all.relation(slot.next_owner, node));
    });
}

/// The epoch, or nullopt when the window was already published.
std::optional<int64> publish(const Ring &ring, const Publication &p) {
    const int32 *table = assignment_of(ring, p);
    const std::string_view *nodes = check_nodes(ring, p);
    const pg::Param start = pg::param_time(p.window_start);
    const pg::Param agent = pg::param(p.agent);
    if (!find_window.run(pg::param(ring.ring_id), start, agent).empty())
        return std::nullopt;
    ensure_slots(ring);
    LockedSlots slots(ring.ring_id); // publishers of one ring queue here
    const TimestampTz now = pg::clock_now();
    pg::Rows made =
        make_window.run(pg::param(ring.ring_id), start, agent, pg::param_time(p.window_end),
                        pg::param(slots.epoch()), pg::param_time(now), pg::param(p.publisher));
    if (made.empty())
        return std::nullopt;
    propose(ring, p, table, nodes, slots);
    forget_windows.run(
        pg::param(ring.ring_id),
        pg::param_time(pg::time_plus(now, -windows_kept * (p.window_end - p.window_start))));
    remove_dead_nodes(ring);
    return slots.epoch();
}

} // namespace

// publish_window(region, cluster, window_start, nodes, range_starts, range_ends, publisher, agent)
STACKSAGA_FUNCTION(publish_window) {
    pg::Arguments arguments(fcinfo);
    std::string_view region = arguments.required_text(0, "region");
    std::string_view cluster = arguments.required_text(1, "cluster");
    check_ring_name(region, cluster);
    Publication p{};
    arguments.require(2, "window_start");
    p.window_start = DatumGetTimestampTz(arguments.datum(2));
    p.nodes = array_argument(arguments, 3, "nodes", &p.count);
    p.ranges = range_arguments(arguments, p.count);
    p.publisher = arguments.required_text(6, "publisher");
    check_name(p.publisher, "publisher");
    if (!arguments.is_null(7)) {
        p.agent = arguments.required_text(7, "agent");
        check_name(p.agent, "agent");
    }
    std::optional<int64> epoch = pg::with_spi([&] {
        const Ring ring = find_ring(region, cluster);
        p.window_end = window_end_of(ring, p.window_start, pg::clock_now());
        return publish(ring, p);
    });
    if (!epoch)
        PG_RETURN_NULL();
    PG_RETURN_INT64(*epoch);
}

} // namespace stacksaga
