// find_sagas: the newest sagas that a filter accepts, with a summary of each.
#include "core/saga/saga_state.hpp"

#include "pg/clock.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/common/limits.hpp"
#include "src/find/find_walk.hpp"
#include "src/find/waits_for.hpp"
#include "src/saga/saga_tables.hpp"

namespace stacksaga {

namespace {

constexpr int64 looked_at_max = 10'000;
constexpr int64 live_sagas_max = 1'000; ///< a larger number says no more, and takes longer

constinit pg::Statement list_definitions{
    "SELECT definition_id FROM stacksaga.saga_definition WHERE saga = $1"};
// The error where a table cannot be accessed directly: somebody has partitioned it, for instance.
enum class ListColumn : uint8_t { saga_id, created_at };
constinit pg::Select<ListColumn> list_sagas{
    "SELECT s.saga_id, s.created_at FROM stacksaga.saga s"
    " WHERE (NOT $1 OR s.definition_id = ANY ($2)) AND ($3::text IS NULL OR s.status = $3)"
    "   AND ($4::text IS NULL OR starts_with(s.key, $4))"
    "   AND ($5::jsonb IS NULL OR s.attributes @> $5)"
    "   AND ($6::timestamptz IS NULL OR (s.created_at, s.saga_id) < ($6, $7::uuid))"
    " ORDER BY s.created_at DESC, s.saga_id DESC LIMIT $8",
    pg::Plans::by_statistics};
constinit pg::Statement count_live{
    "SELECT count(*) FROM (SELECT 1 FROM stacksaga.saga WHERE definition_id = $1"
    "   AND status <> ALL ('{completed,failed}') LIMIT $2) AS s",
    pg::Plans::by_statistics};
enum class SummaryColumn : uint8_t {
    saga_id,
    definition_id,
    key,
    status,
    attributes,
    priority,
    group_key,
    created_at,
    updated_at,
    finished_at,
    parked_step,
    parked_direction,
};
constinit pg::Select<SummaryColumn> read_sagas{
    "SELECT s.saga_id, s.definition_id, s.key, s.status, s.attributes, s.priority::integer,"
    "       s.group_key, s.created_at, s.updated_at, s.finished_at, s.parked_step::integer,"
    "       s.parked_direction"
    "  FROM unnest($1::uuid[]) AS f(saga_id), LATERAL ("
    "       SELECT * FROM stacksaga.saga s WHERE s.saga_id = f.saga_id) AS s"};
enum class StepColumn : uint8_t {
    saga_id,
    step_no,
    direction,
    due_at,
    attempt,
    attempt_base,
    lease_until,
    started_at,
    verifying,
    falling_back,
    deferred,
    queue,
    worker,
    ring_id,
    group_key,
};
constinit pg::Select<StepColumn> read_steps{
    "SELECT w.saga_id, w.step_no, w.direction, w.due_at, w.attempt, w.attempt_base, w.lease_until,"
    "       w.started_at, w.verifying, w.falling_back, w.deferred, w.queue, w.worker,"
    "       w.ring_id, w.group_key"
    "  FROM unnest($1::uuid[]) AS f(saga_id), LATERAL ("
    "       SELECT * FROM stacksaga.work w"
    "        WHERE w.saga_id = f.saga_id AND w.purpose = 'step') AS w"};

// ------------------------------------------------------------------------------------- the search

using Places = std::span<const ListPlace>;

/// Many sagas may have each of two attributes and few both, and no index finds those few.
bool is_bounded(const SagaFilter &filter) {
    return filter.hashes.size() > 1 || (!filter.hashes.empty() && filter.key_prefix);
}

[[noreturn]] void raise_too_many(const SagaFilter &filter) {
    const char *missing = !filter.status   ? "status"
                          : !filter.saga   ? "saga"
                          : !filter.before ? "created_before"
                          : !filter.key_prefix
                              ? "key_prefix"
                              : "an attribute that fewer sagas have, or a longer key_prefix";
    ereport(ERROR,
            (errcode(pg::sg400),
             errmsg("find_sagas() has looked at %lld sagas and has not found a page",
                    static_cast<long long>(looked_at_max)),
             errdetail("Each of the filters accepts many sagas, and few are accepted by all."),
             errhint("Add a filter: %s.", missing)));
}

/// Indexes that are open for a search.
struct SearchIndexes {
    pg::OpenIndex list;
    std::optional<pg::OpenIndex> keys;
    std::optional<pg::OpenIndex> primary_key; ///< of table saga, when the list is of attributes

    void close() {
        list.close();
        if (keys)
            keys->close();
        if (primary_key)
            primary_key->close();
    }
};

/// nullopt: one of them cannot be read.
std::optional<SearchIndexes> open_indexes(const SagaFilter &filter) {
    const bool by_attribute = !filter.hashes.empty();
    const std::optional<pg::OpenIndex> list =
        by_attribute
            ? pg::OpenIndex::open(attribute_table, AttributeIndex::listed)
            : pg::OpenIndex::open(saga_table, filter.saga || filter.status ? SagaIndex::listed
                                                                           : SagaIndex::created);
    if (!list)
        return std::nullopt;
    SearchIndexes indexes{.list = *list, .keys = std::nullopt, .primary_key = std::nullopt};
    if (filter.key_prefix)
        indexes.keys = pg::OpenIndex::open(saga_table, SagaIndex::key);
    if (by_attribute)
        indexes.primary_key = pg::OpenIndex::open(saga_table, SagaIndex::primary_key);
    if (indexes.keys.has_value() == filter.key_prefix.has_value() &&
        indexes.primary_key.has_value() == by_attribute)
        return indexes;
    indexes.close();
    return std::nullopt;
}

/// A walk along the list, and the page that it has found.
struct Runner {
    ListWalk walk;
    FoundPage page;
};

/// Whether the walk will fill the page soon if it finds sagas as often as in its turns so far: then
/// the walk along keys waits. Soon means within the time that reading fifty thousand keys takes,
/// since rows of one status lie far apart.
bool is_promising(const SagaFilter &filter, const FoundPage &page, int64 turns) {
    constexpr int64 found_min = 3;
    const int64 turns_max = filter.accepts_each_key() ? 12'000 : 2'500;
    const auto found = static_cast<int64>(page.places().size());
    return found >= found_min &&
           turns * (static_cast<int64>(filter.max_sagas) - found) <= turns_max * found;
}

/// Looks at some sagas of the list: at one row, or at many entries when it is known which rows
/// match.
bool advance(Runner &runner, const RowSet *only) {
    constexpr int entries_per_turn = 16;
    for (int i = only == nullptr ? 1 : entries_per_turn; i > 0; --i)
        if (!runner.walk.advance(runner.page, only))
            return false;
    return true;
}

/// The walks take turns; the first that finishes has found the page.
Places race(const SagaFilter &filter, std::span<Runner> runners, std::optional<KeyWalk> &keys) {
    FoundPage page_of_keys(filter.max_sagas);
    int64 looked = 0;
    for (int64 turns = 1;; ++turns) {
        CHECK_FOR_INTERRUPTS();
        // Rows of attributes are others.
        const RowSet *only = keys && filter.hashes.empty() ? keys->rows() : nullptr;
        for (Runner &runner : runners) {
            ++looked;
            if (!advance(runner, only))
                return runner.page.places();
        }
        if (keys && !is_promising(filter, runners[0].page, turns)) {
            const KeyWalk::State state = keys->advance(page_of_keys);
            if (state == KeyWalk::State::done)
                return page_of_keys.places();
            looked += state == KeyWalk::State::looking ? 1 : 0;
        }
        if (looked > looked_at_max && is_bounded(filter))
            raise_too_many(filter);
    }
}

Places search(const SagaFilter &filter, SearchIndexes &indexes) {
    const size_t count = std::max<size_t>(1, filter.hashes.size());
    auto *runners = static_cast<Runner *>(palloc(sizeof(Runner) * count));
    for (size_t i = 0; i < count; ++i)
        new (&runners[i])
            Runner{.walk = filter.hashes.empty()
                               ? ListWalk::of_sagas(filter, indexes.list)
                               : ListWalk::of_attribute(filter, indexes.list, filter.hashes[i],
                                                        *indexes.primary_key),
                   .page = FoundPage(filter.max_sagas)};
    std::optional<KeyWalk> keys;
    if (filter.key_prefix)
        keys.emplace(filter, *indexes.keys);
    const Places found = race(filter, {runners, count}, keys);
    for (size_t i = 0; i < count; ++i)
        runners[i].walk.close();
    if (keys)
        keys->close();
    return found;
}

Places search_by_sql(const SagaFilter &filter) {
    const std::optional<ListPlace> &before = filter.before;
    const auto rows = list_sagas.read(
        pg::param(filter.saga.has_value()), pg::param_array(filter.definitions),
        pg::param(filter.status ? std::optional{core::name_of(*filter.status)} : std::nullopt),
        pg::param(filter.key_prefix),
        filter.attributes ? pg::param_datum(JSONBOID, *filter.attributes)
                          : pg::param_null(JSONBOID),
        before ? pg::param_time(before->created_at) : pg::param_null(TIMESTAMPTZOID),
        before ? pg::param(before->saga_id) : pg::param_null(UUIDOID),
        pg::param(static_cast<int64>(filter.max_sagas)));
    auto *found = static_cast<ListPlace *>(palloc(sizeof(ListPlace) * (rows.count() + 1)));
    for (uint64 i = 0; i < rows.count(); ++i)
        found[i] = {.created_at = rows.time(i, ListColumn::created_at),
                    .saga_id = rows.uuid(i, ListColumn::saga_id)};
    return {found, rows.count()};
}

std::span<const int32> definitions_of(std::string_view saga) {
    const pg::Rows rows = list_definitions.read(pg::param(saga));
    auto *ids = static_cast<int32 *>(palloc(sizeof(int32) * (rows.count() + 1)));
    for (uint64 i = 0; i < rows.count(); ++i)
        ids[i] = rows.int4(i);
    return {ids, rows.count()};
}

Places find(SagaFilter &filter) {
    if (filter.saga)
        filter.definitions = definitions_of(*filter.saga);
    std::optional<SearchIndexes> indexes = open_indexes(filter);
    if (!indexes)
        return search_by_sql(filter);
    const Places found = search(filter, *indexes);
    indexes->close();
    return found;
}

// --------------------------------------------------------------------------------------- the rows

bool is_same(const pg_uuid_t &a, const pg_uuid_t &b) {
    return memcmp(a.data, b.data, UUID_LEN) == 0;
}

/// The row of the step that is due first, as in the column current_step of the view sagas.
std::optional<WaitingStep> first_step(const pg::RowsOf<StepColumn> &rows, const pg_uuid_t &saga_id,
                                      const Definition &definition) {
    using Column = StepColumn;
    const auto place = [&](uint64 i) {
        return std::pair(rows.time(i, Column::due_at), rows.int2(i, Column::step_no));
    };
    std::optional<uint64> first;
    for (uint64 i = 0; i < rows.count(); ++i)
        if (is_same(rows.uuid(i, Column::saga_id), saga_id) && (!first || place(i) < place(*first)))
            first = i;
    if (!first)
        return std::nullopt;
    const std::string_view group = rows.text(*first, Column::group_key);
    return WaitingStep{.step = definition.step(rows.int2(*first, Column::step_no)),
                       .ring_id = rows.int4(*first, Column::ring_id),
                       .direction = *core::direction_of(rows.text(*first, Column::direction)),
                       .due_at = rows.time(*first, Column::due_at),
                       .attempt = rows.int4(*first, Column::attempt),
                       .attempt_base = rows.int4(*first, Column::attempt_base),
                       .lease_until = rows.optional_time(*first, Column::lease_until),
                       .started_at = rows.optional_time(*first, Column::started_at),
                       .verifying = rows.boolean(*first, Column::verifying),
                       .falling_back = rows.boolean(*first, Column::falling_back),
                       .deferred = rows.boolean(*first, Column::deferred),
                       .queue = rows.optional_text(*first, Column::queue),
                       .group = group.empty() ? std::optional<std::string_view>{} : group,
                       .worker = rows.optional_text(*first, Column::worker)};
}

const char *waits_for(const pg::RowsOf<SummaryColumn> &sagas, uint64 i,
                      const pg::RowsOf<StepColumn> &steps, TimestampTz now) {
    using Column = SummaryColumn;
    const Definition &definition = load_definition(sagas.int4(i, Column::definition_id));
    WaitingSaga saga{.definition = definition,
                     .status = *core::status_of(sagas.text(i, Column::status)),
                     .updated_at = sagas.time(i, Column::updated_at),
                     .parked_step = std::nullopt,
                     .parked_direction = std::nullopt};
    if (!sagas.is_null(i, Column::parked_step) && !sagas.is_null(i, Column::parked_direction)) {
        saga.parked_step = static_cast<int16>(sagas.int4(i, Column::parked_step));
        saga.parked_direction = core::direction_of(sagas.text(i, Column::parked_direction));
    }
    return waits_for(saga, first_step(steps, sagas.uuid(i, Column::saga_id), definition), now);
}

pg::Column text_or_null(const char *text) {
    return text == nullptr ? pg::null() : pg::of(CStringGetTextDatum(text));
}

void add_rows(pg::ResultSet &result, Places found, TimestampTz now) {
    auto *ids = static_cast<pg_uuid_t *>(palloc(sizeof(pg_uuid_t) * (found.size() + 1)));
    std::transform(found.begin(), found.end(), ids,
                   [](const ListPlace &place) { return place.saga_id; });
    const pg::Param wanted = pg::param_array(std::span<const pg_uuid_t>(ids, found.size()));
    using Column = SummaryColumn;
    const auto sagas = read_sagas.read(wanted);
    const auto steps = read_steps.read(wanted);
    for (uint64 i = 0; i < sagas.count(); ++i) {
        const Definition &definition = load_definition(sagas.int4(i, Column::definition_id));
        const auto column = [&](Column c) { return pg::of(sagas.nullable(i, c)); };
        result.add(column(Column::saga_id), pg::of(PointerGetDatum(pg::make_text(definition.saga))),
                   pg::of(Int32GetDatum(definition.version)), column(Column::key),
                   column(Column::status), text_or_null(waits_for(sagas, i, steps, now)),
                   column(Column::attributes), column(Column::priority), column(Column::group_key),
                   column(Column::created_at), column(Column::updated_at),
                   column(Column::finished_at));
    }
}

int64 count_by_index(const pg::OpenIndex &index, int32 definition_id) {
    int64 live = 0;
    for (size_t i = 0; i < core::status_names.size(); ++i) {
        if (core::is_final(static_cast<core::Status>(i)))
            continue;
        const std::array key{pg::KeyColumn{F_TEXTEQ, C_COLLATION_OID,
                                           PointerGetDatum(pg::make_text(core::status_names[i]))},
                             pg::KeyColumn{F_INT4EQ, InvalidOid, Int32GetDatum(definition_id)}};
        pg::IndexWalk walk(index, key, std::nullopt, ForwardScanDirection,
                           pg::IndexWalk::Entries::places);
        while (live < live_sagas_max && walk.next_row() != nullptr)
            ++live;
        walk.close();
    }
    return live;
}

} // namespace

// find_sagas(saga, status, key_prefix, attributes, created_before, before_saga_id, max_sagas)
//   -> TABLE(saga_id, saga, version, key, status, waits_for, attributes, priority, group_key,
//            created_at, updated_at, finished_at)
STACKSAGA_FUNCTION(find_sagas) {
    SagaFilter filter = find_argument(pg::Arguments(fcinfo));
    pg::ResultSet result(fcinfo);
    pg::with_spi([&] { add_rows(result, find(filter), pg::clock_now()); });
    return result.finish();
}

// saga_waits_for(saga_id) -> text
STACKSAGA_FUNCTION(saga_waits_for) {
    if (PG_ARGISNULL(0)) // as for an unknown id
        PG_RETURN_NULL();
    const pg_uuid_t id = *PG_GETARG_UUID_P(0);
    const MemoryContext outside = CurrentMemoryContext;
    const char *text = pg::with_spi([&]() -> const char * {
        const pg::Param wanted = pg::param_array(std::span<const pg_uuid_t>(&id, 1));
        const auto sagas = read_sagas.read(wanted);
        if (sagas.empty())
            return nullptr;
        const char *found = waits_for(sagas, 0, read_steps.read(wanted), pg::clock_now());
        return found == nullptr ? nullptr : MemoryContextStrdup(outside, found);
    });
    if (text == nullptr)
        PG_RETURN_NULL();
    return CStringGetTextDatum(text);
}

// live_sagas(definition_id) -> bigint
STACKSAGA_FUNCTION(live_sagas) {
    const int32 definition_id = pg::Arguments(fcinfo).required_int4(0, "definition_id");
    std::optional<pg::OpenIndex> index = pg::OpenIndex::open(saga_table, SagaIndex::listed);
    if (!index)
        PG_RETURN_INT64(pg::with_spi([&] {
            return count_live.read(pg::param(definition_id), pg::param(live_sagas_max)).int8(0);
        }));
    const int64 live = count_by_index(*index, definition_id);
    index->close();
    PG_RETURN_INT64(live);
}

} // namespace stacksaga
