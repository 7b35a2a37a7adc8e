#include "src/ring/rings.hpp"

#include "core/ring/ring_settings.hpp"
#include "core/ring/slots.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/settings.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "pg/table/lookup.hpp"
#include "src/common/limits.hpp"
#include "src/ring/ring_options.hpp"

namespace stacksaga {

namespace {

constexpr std::array ring_columns{
    pg::TableColumn{"ring_id", INT4OID},
    pg::TableColumn{"region", TEXTOID},
    pg::TableColumn{"cluster", TEXTOID},
    pg::TableColumn{"slots", INT4OID},
};
constexpr std::array ring_indexes{
    pg::TableIndex{.name = "ring_region_cluster_key",
                   .key = {RingColumn::region, RingColumn::cluster},
                   .is_unique = true},
};

enum class NodeColumn : uint8 { node = 1 };
constexpr std::array node_columns{pg::TableColumn{"node", TEXTOID}};
constexpr std::array node_indexes{
    pg::TableIndex{.name = "node_pkey", .key = {NodeColumn::node}, .is_unique = true},
};

enum class FoundColumn : uint8_t { ring_id, slots };
constinit pg::Select<FoundColumn> find_by_name{
    "SELECT ring_id, slots FROM stacksaga.ring WHERE region = $1 AND cluster = $2"};
constinit pg::Select<FoundColumn> find_by_id{
    "SELECT ring_id, slots FROM stacksaga.ring WHERE ring_id = $1"};
constinit pg::Statement list_adopted{
    "SELECT a.from_ring_id FROM stacksaga.ring_adoption AS a"
    " WHERE a.to_ring_id = ANY ($1) AND a.from_ring_id <> ALL ($1)"
    "   AND NOT EXISTS (SELECT FROM stacksaga.slot AS s"
    "                    WHERE s.ring_id = a.from_ring_id AND s.owner IS NOT NULL)"
    " GROUP BY a.from_ring_id"};
constinit pg::Statement find_slot{"SELECT FROM stacksaga.slot WHERE ring_id = $1 AND slot = $2"};
constinit pg::Statement make_slots{
    "INSERT INTO stacksaga.slot (ring_id, slot, range_start, range_end)"
    " SELECT $1, s.slot, s.range_start, s.range_end"
    "   FROM unnest($2, $3, $4) AS s(slot, range_start, range_end)"
    " ON CONFLICT DO NOTHING"};
constinit pg::Statement count_epoch{
    "INSERT INTO stacksaga.ring_epoch AS e VALUES ($1, 1)"
    " ON CONFLICT (ring_id) DO UPDATE SET epoch = e.epoch + 1 RETURNING epoch"};
constinit pg::Statement read_epoch{"SELECT epoch FROM stacksaga.ring_epoch WHERE ring_id = $1"};

Ring ring_of_rows(const pg::RowsOf<FoundColumn> &rows) {
    return {.ring_id = rows.int4(0, FoundColumn::ring_id),
            .slots = rows.int4(0, FoundColumn::slots)};
}

/// Without a statement, so nothing where the table cannot be read so, too.
std::optional<Ring> look_up(std::string_view region, std::string_view cluster) {
    const auto text = [](std::string_view value) {
        return pg::KeyColumn{F_TEXTEQ, DEFAULT_COLLATION_OID,
                             PointerGetDatum(pg::make_text(value))};
    };
    std::optional<Ring> ring;
    (void)pg::try_index(ring_table, RingIndex::by_name, [&](pg::IndexReader &reader) {
        reader.seek(std::array{text(region), text(cluster)});
        bool isnull;
        if (TupleTableSlot *row = reader.next(); row != nullptr)
            ring = {.ring_id = DatumGetInt32(slot_getattr(row, 1, &isnull)),
                    .slots = DatumGetInt32(slot_getattr(row, 4, &isnull))};
    });
    return ring;
}

} // namespace

constinit pg::Table ring_table{{.name = "ring",
                                .columns = ring_columns,
                                .indexes = ring_indexes,
                                .described = pg::Described::what_is_read}};
constinit pg::Table node_table{{.name = "node",
                                .columns = node_columns,
                                .indexes = node_indexes,
                                .described = pg::Described::what_is_read}};

void check_ring_name(std::string_view region, std::string_view cluster) {
    check_name(region, "region", ring_name_bytes_max);
    check_name(cluster, "cluster", ring_name_bytes_max);
}

namespace {

Ring find_ring_or(std::string_view region, std::string_view cluster, const char *hint) {
    if (const std::optional<Ring> ring = look_up(region, cluster))
        return *ring;
    const auto rows = find_by_name.run(pg::param(region), pg::param(cluster));
    if (rows.empty())
        ereport(ERROR, (errcode(pg::sg404), errmsg("ring does not exist"),
                        errdetail("There is no ring with region \"%s\" and cluster \"%s\".",
                                  clip(region), clip(cluster)),
                        errhint("%s", hint)));
    return ring_of_rows(rows);
}

} // namespace

Ring find_ring(std::string_view region, std::string_view cluster) {
    return find_ring_or(region, cluster, "Create it with stacksaga.create_ring().");
}

bool is_default_ring_current() {
    return strcmp(pg::settings.region, "default") == 0 &&
           strcmp(pg::settings.cluster, "default") == 0;
}

Ring current_ring() {
    if (is_default_ring_current())
        return default_ring;
    return find_ring_or(pg::settings.region, pg::settings.cluster,
                        "Correct the settings stacksaga.region and stacksaga.cluster, or create "
                        "the ring with stacksaga.create_ring().");
}

Ring ring_of_id(int32 ring_id) {
    const auto rows = find_by_id.run(pg::param(ring_id));
    if (rows.empty())
        elog(ERROR, "ring %d does not exist", ring_id);
    return ring_of_rows(rows);
}

std::span<const int32> served_rings(int32 ring_id) {
    auto *rings = static_cast<int32 *>(palloc(sizeof(int32)));
    rings[0] = ring_id;
    size_t count = 1;
    // Not as a recursive query: its table of what it has found already is as large as the planner
    // can imagine, and a worker asks at each turn.
    for (;;) {
        pg::Rows rows = list_adopted.run(pg::param_array(std::span<const int32>{rings, count}));
        if (rows.empty())
            return {rings, count};
        rings = static_cast<int32 *>(repalloc(rings, sizeof(int32) * (count + rows.count())));
        for (uint64 i = 0; i < rows.count(); ++i)
            rings[count++] = rows.int4(i);
    }
}

void ensure_slots(const Ring &ring) {
    if (!find_slot.run(pg::param(ring.ring_id), pg::param(ring.slots - 1)).empty())
        return;
    auto count = static_cast<size_t>(ring.slots);
    auto *slots = static_cast<int32 *>(palloc(sizeof(int32) * count));
    auto *starts = static_cast<int64 *>(palloc(sizeof(int64) * count));
    auto *ends = static_cast<int64 *>(palloc(sizeof(int64) * count));
    for (int32 slot = 0; slot < ring.slots; ++slot) {
        const core::Range range = core::slot_range(slot, ring.slots);
        slots[slot] = slot;
        starts[slot] = range.first.value();
        ends[slot] = range.last.value();
    }
    make_slots.run(pg::param(ring.ring_id), pg::param_array(std::span<const int32>{slots, count}),
                   pg::param_array(std::span<const int64>{starts, count}),
                   pg::param_array(std::span<const int64>{ends, count}));
}

int64 raise_epoch(int32 ring_id) {
    return count_epoch.run(pg::param(ring_id)).int8(0);
}

int64 ring_epoch(int32 ring_id) {
    pg::Rows rows = read_epoch.run(pg::param(ring_id));
    return rows.empty() ? 0 : rows.int8(0);
}

namespace {

constinit pg::Statement find_last_window{
    "SELECT window_start FROM stacksaga.token_window"
    " WHERE ring_id = $1 AND agent = '' ORDER BY window_start DESC LIMIT 1"};
enum class OwnerColumn : uint8_t { slot, node, epoch, next_node };
constinit pg::Select<OwnerColumn> list_owners{
    "SELECT s.slot, n.node, s.epoch, x.node AS next_node"
    "  FROM stacksaga.slot s"
    "  LEFT JOIN stacksaga.node n ON n.incarnation = s.owner AND n.ring_id = $1"
    "  LEFT JOIN stacksaga.node x ON x.incarnation = s.next_owner AND x.ring_id = $1"
    " WHERE s.ring_id = $1"};

Ring ring_argument(const pg::Arguments &arguments) {
    std::string_view region = arguments.required_text(0, "region");
    std::string_view cluster = arguments.required_text(1, "cluster");
    check_ring_name(region, cluster);
    return find_ring(region, cluster);
}

void add_ring_state(const pg::Arguments &arguments, pg::ResultSet &result) {
    Ring ring = ring_argument(arguments);
    const core::RingSettings settings = read_settings(ring);
    pg::Rows last = find_last_window.run(pg::param(ring.ring_id));
    std::string_view strategy = core::strategy_names[static_cast<size_t>(settings.strategy)];
    result.add(pg::of(TimestampTzGetDatum(pg::clock_now())),
               pg::of(pg::interval_of_microseconds(settings.window_length)),
               pg::of(pg::interval_of_microseconds(settings.publish_lead)),
               pg::of(PointerGetDatum(pg::make_text(strategy))), pg::of(Int32GetDatum(ring.slots)),
               pg::of(Int64GetDatum(ring_epoch(ring.ring_id))),
               last.empty() ? pg::null() : pg::of(TimestampTzGetDatum(last.time(0))),
               pg::of(Int32GetDatum(settings.virtual_nodes)));
}

struct SlotOwner {
    Datum node; ///< text; 0: nobody
    int64 epoch;
    Datum next_node; ///< text; 0: nobody
};

void add_ring_slots(const pg::Arguments &arguments, pg::ResultSet &result) {
    Ring ring = ring_argument(arguments);
    auto *owners =
        static_cast<SlotOwner *>(palloc0(sizeof(SlotOwner) * static_cast<size_t>(ring.slots)));
    const auto rows = list_owners.run(pg::param(ring.ring_id));
    for (uint64 i = 0; i < rows.count(); ++i) {
        SlotOwner &owner = owners[rows.int4(i, OwnerColumn::slot)];
        const auto name = [&](OwnerColumn column) {
            return rows.is_null(i, column) ? Datum{0} : rows.value(i, column);
        };
        owner = {name(OwnerColumn::node), rows.int8(i, OwnerColumn::epoch),
                 name(OwnerColumn::next_node)};
    }
    for (int32 slot = 0; slot < ring.slots; ++slot) {
        const core::Range range = core::slot_range(slot, ring.slots);
        const SlotOwner &owner = owners[slot];
        const auto name = [](Datum node) { return node == 0 ? pg::null() : pg::of(node); };
        result.add(pg::of(Int32GetDatum(slot)), pg::of(Int64GetDatum(range.first.value())),
                   pg::of(Int64GetDatum(range.last.value())), name(owner.node),
                   pg::of(Int64GetDatum(owner.epoch)), name(owner.next_node));
    }
}

} // namespace

// ring_state(region, cluster) -> one row
STACKSAGA_FUNCTION(ring_state) {
    pg::Arguments arguments(fcinfo);
    pg::ResultSet result(fcinfo);
    pg::with_spi([&] { add_ring_state(arguments, result); });
    return pg::ResultSet::finish();
}

// ring_slots(region, cluster) -> a row per slot
STACKSAGA_FUNCTION(ring_slots) {
    pg::Arguments arguments(fcinfo);
    pg::ResultSet result(fcinfo);
    pg::with_spi([&] { add_ring_slots(arguments, result); });
    return pg::ResultSet::finish();
}

// is_ring_served(region, cluster) -> boolean
STACKSAGA_FUNCTION(is_ring_served) {
    pg::Arguments arguments(fcinfo);
    PG_RETURN_BOOL(pg::is_ring_served(arguments.required_text(0, "region"),
                                      arguments.required_text(1, "cluster")));
}

} // namespace stacksaga
