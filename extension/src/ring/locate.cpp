// locate: the owner of a key.
#include "core/ring/slots.hpp"
#include "core/ring/token.hpp"
#include "core/ring/window.hpp"

#include "pg/clock.hpp"
#include "pg/select.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/limits.hpp"
#include "src/ring/ring_options.hpp"
#include "src/ring/token_functions.hpp"

namespace stacksaga {

namespace {

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

// locate(key) -> (token, slot, node, valid_until, next_node)
STACKSAGA_FUNCTION(locate) {
    std::string_view key = pg::Arguments(fcinfo).required_text(0, "key");
    pg::ResultSet result(fcinfo);
    pg::with_spi([&] { add_location(key, result); });
    return pg::ResultSet::finish();
}

} // namespace stacksaga
