// node_ranges: the token ranges that a node may work on now. locate: the owner of a key.
#include "src/ring/ranges.hpp"

#include "core/ring/ring_settings.hpp"
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
#include "src/ring/ring_options.hpp"
#include "src/ring/token_functions.hpp"

namespace stacksaga {

namespace {

enum class NodeColumn : uint8_t { ring_id, incarnation };
constinit pg::Select<NodeColumn> find_node{
    "SELECT ring_id, incarnation FROM stacksaga.node WHERE node = $1"};
enum class HeldColumn : uint8_t { slot, epoch };
constinit pg::Select<HeldColumn> list_held{SLOTS_HELD("$1", "$2", "$3") " ORDER BY s.slot"};

struct Run {
    int32 first;
    int32 last;
    int64 epoch; ///< the latest among its slots
};

/// Windows change ownership by plan only where they begin: what is held now is held to the end of
/// the window that is open by the clock, whether or not anybody published it.
void add_run(pg::ResultSet &result, const Ring &ring, int64 length, const Run &run,
             TimestampTz now) {
    const core::Range range = core::range_of_slots(run.first, run.last, ring.slots);
    result.add(pg::of(Int64GetDatum(range.first.value())),
               pg::of(Int64GetDatum(range.last.value())), pg::of(Int64GetDatum(run.epoch)),
               pg::of(TimestampTzGetDatum(core::window::align(now, length))),
               pg::of(TimestampTzGetDatum(core::window::next_start(now, length))));
}

void add_ranges(std::string_view node, pg::ResultSet &result) {
    const auto found = find_node.run(pg::param(node));
    if (found.empty())
        ereport(ERROR, (errcode(pg::sg404), errmsg("node does not exist"),
                        errdetail("There is no node \"%s\".", clip(node)),
                        errhint("Register it with stacksaga.register_node().")));
    const Ring ring = ring_of_id(found.int4(0, NodeColumn::ring_id));
    const core::RingSettings settings = read_settings(ring);
    const TimestampTz now = pg::clock_now();
    const auto rows =
        list_held.run(pg::param(ring.ring_id), pg::param(found.int8(0, NodeColumn::incarnation)),
                      pg::param_time(now));
    std::optional<Run> run;
    for (uint64 i = 0; i < rows.count(); ++i) {
        const int32 slot = rows.int4(i, HeldColumn::slot);
        if (run && run->last + 1 != slot) {
            add_run(result, ring, settings.window_length, *run, now);
            run.reset();
        }
        if (!run)
            run = Run{.first = slot, .last = slot, .epoch = 0};
        run->last = slot;
        run->epoch = std::max(run->epoch, rows.int8(i, HeldColumn::epoch));
    }
    if (run)
        add_run(result, ring, settings.window_length, *run, now);
}

// A node that was removed owns nothing. A proposal counts from the start of its window on; until
// then, and without one, the owner stays.
enum class SlotColumn : uint8_t { node, next_node };
constinit pg::Select<SlotColumn> find_slot{
    "SELECT o.node, coalesce(n.node, o.node) AS next_node"
    "  FROM stacksaga.slot s"
    "  LEFT JOIN stacksaga.node o ON o.incarnation = s.owner"
    "  LEFT JOIN stacksaga.node n ON n.incarnation = s.next_owner"
    " WHERE s.ring_id = $1 AND s.slot = $2"};

pg::Column name_column(const std::optional<std::string_view> &name) {
    return name ? pg::of(PointerGetDatum(pg::make_text(*name))) : pg::null();
}

void add_location(std::string_view key, pg::ResultSet &result) {
    const core::Token token = token_of_text(key);
    const Ring ring = current_ring();
    const int32 slot = core::slot_of(token, ring.slots);
    const int64 window_length = read_settings(ring).window_length;
    const auto rows = find_slot.run(pg::param(ring.ring_id), pg::param(slot));
    std::optional<std::string_view> node, next_node;
    if (!rows.empty()) {
        node = rows.optional_text(0, SlotColumn::node);
        next_node = rows.optional_text(0, SlotColumn::next_node);
    }
    result.add(
        pg::of(Int64GetDatum(token.value())), pg::of(Int32GetDatum(slot)), name_column(node),
        pg::of(TimestampTzGetDatum(core::window::next_start(pg::clock_now(), window_length))),
        name_column(next_node));
}

} // namespace

// node_ranges(node) -> (range_start, range_end, epoch, valid_from, valid_until)
STACKSAGA_FUNCTION(node_ranges) {
    std::string_view node = pg::Arguments(fcinfo).required_text(0, "node");
    check_name(node, "node");
    pg::ResultSet result(fcinfo);
    pg::with_spi([&] { add_ranges(node, result); });
    return pg::ResultSet::finish();
}

// locate(key) -> (token, slot, node, valid_until, next_node)
STACKSAGA_FUNCTION(locate) {
    std::string_view key = pg::Arguments(fcinfo).required_text(0, "key");
    pg::ResultSet result(fcinfo);
    pg::with_spi([&] { add_location(key, result); });
    return pg::ResultSet::finish();
}

} // namespace stacksaga
