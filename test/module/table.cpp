// SQL functions around extension/pg/table/table.hpp, for test/tap/table_*.pl: they do to the table
// stacksaga.thing of that test what C++ does to tables of the extension. Results whose columns are
// not those of their enum, for test/tap/table_columns.pl. And users of the ends of transactions
// (pg/transaction_events.hpp) that write down when they run, for test/tap/transaction_events.pl.
#include "pg/table/table.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/result.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "pg/transaction_events.hpp"

extern "C" {
PG_MODULE_MAGIC;
extern PGDLLEXPORT void _PG_init(void);
}

namespace stacksaga {

namespace {

enum class Column : uint8 {
    id = 1,
    token,
    purpose,
    direction,
    due_at,
    lease,
    verifying,
    queue,
    note,
    payload,
};
constexpr std::array columns{
    pg::TableColumn{"id", INT8OID},
    pg::TableColumn{"token", INT8OID, pg::Nulls::refused, "ring_token"},
    pg::TableColumn{"purpose", ANYENUMOID, pg::Nulls::refused, "work_purpose"},
    pg::TableColumn{"direction", TEXTOID, pg::Nulls::refused, "step_direction"},
    pg::TableColumn{"due_at", TIMESTAMPTZOID},
    pg::TableColumn{"lease", INT8OID, pg::Nulls::allowed},
    pg::TableColumn{"verifying", BOOLOID},
    pg::TableColumn{"queue", TEXTOID, pg::Nulls::allowed},
    pg::TableColumn{"note", TEXTOID, pg::Nulls::allowed},
    pg::TableColumn{"payload", JSONBOID, pg::Nulls::allowed},
};
constexpr std::array indexes{
    pg::TableIndex{.name = "thing_pkey",
                   .key = {Column::id, Column::purpose, Column::direction, Column::token},
                   .is_unique = true},
    pg::TableIndex{.name = "thing_for_workers",
                   .key = {Column::token, Column::due_at},
                   .predicate = "((queue IS NULL) OR verifying OR (lease IS NOT NULL))",
                   .holds =
                       [](const pg::TableRow &row) {
                           return row.is_null(Column::queue) || row.boolean(Column::verifying) ||
                                  !row.is_null(Column::lease);
                       }},
    pg::TableIndex{.name = "thing_for_services",
                   .key = {Column::queue, Column::due_at},
                   .predicate = "((queue IS NOT NULL) AND (NOT verifying))",
                   .holds =
                       [](const pg::TableRow &row) {
                           return !row.is_null(Column::queue) && !row.boolean(Column::verifying);
                       }},
    pg::TableIndex{.name = "thing_note",
                   .key = {Column::note},
                   .is_unique = true,
                   .predicate = "(note IS NOT NULL)",
                   .holds = [](const pg::TableRow &row) { return !row.is_null(Column::note); }},
};
constexpr std::array triggers{pg::TableTrigger{"thing_guard"}};
constinit pg::Table things{
    {.name = "thing", .columns = columns, .indexes = indexes, .triggers = triggers}};

using Assignments = std::array<pg::Assignment, columns.size()>;

/// What a value of type stacksaga.thing holds.
Assignments assignments_of(Datum thing) {
    HeapTupleHeader header = DatumGetHeapTupleHeader(thing);
    Assignments all{};
    for (size_t i = 0; i < columns.size(); ++i) {
        bool isnull;
        const Datum value = GetAttributeByNum(header, static_cast<AttrNumber>(i + 1), &isnull);
        all[i] = {static_cast<uint8>(i + 1), pg::param_datum(columns[i].type, value, isnull)};
    }
    return all;
}

using Key = std::array<pg::Param, pg::index_columns_max>;

/// What its columns of an index hold.
Key key_of(size_t index, Datum thing) {
    const Assignments all = assignments_of(thing);
    Key key{};
    for (size_t i = 0; i < indexes[index].key.size; ++i)
        key[i] = all[indexes[index].key.columns[i] - 1u].value;
    return key;
}

pg::RowLock lock_of(std::string_view name) {
    if (name == "update")
        return pg::RowLock::update;
    return name == "no_key_update" ? pg::RowLock::no_key_update : pg::RowLock::none;
}

std::optional<pg::TableRow> find_by_key(Datum thing, std::string_view lock) {
    const Key key = key_of(0, thing);
    return things.find_one(
        {.key = std::span(key).first(indexes[0].key.size), .lock = lock_of(lock)});
}

/// What happens between reading a row and writing it.
void run_meanwhile(const pg::Arguments &arguments, int i) {
    if (arguments.is_null(i))
        return;
    const char *statement = TextDatumGetCString(arguments.datum(i));
    pg::with_spi([&] { SPI_execute(statement, false, 0); });
}

std::optional<pg::Bound> bound_of(const pg::Arguments &arguments, int time, int is_inclusive) {
    if (arguments.is_null(time))
        return std::nullopt;
    return pg::Bound{pg::param_time(DatumGetTimestampTz(arguments.datum(time))),
                     arguments.required_bool(is_inclusive, "inclusive")};
}

// ----------------------------------------------------------------------------- events

/// What has run, since it was read last: no allocation, as at_commit demands.
struct Log {
    std::array<char, 1000> text{};
    size_t size = 0;
    bool is_on = false;
};
constinit Log events{};

void note(char user, const char *event, int32 level = 0) {
    if (!events.is_on)
        return;
    char *end = events.text.data() + events.size;
    const size_t room = events.text.size() - events.size;
    const int written = level == 0 ? snprintf(end, room, "%c %s\n", user, event)
                                   : snprintf(end, room, "%c %s %d\n", user, event, level);
    events.size += std::min(static_cast<size_t>(written), room - 1);
}

template <char name>
constexpr pg::TransactionUser noting{
    .before_commit = [] { note(name, "before_commit"); },
    .before_prepare = [] { note(name, "before_prepare"); },
    .at_commit = [] { note(name, "at_commit"); },
    .at_prepare = [] { note(name, "at_prepare"); },
    .at_abort = [] { note(name, "at_abort"); },
    .at_end = [] { note(name, "at_end"); },
    .at_release = [](const pg::Subtransaction &s) { note(name, "at_release", s.level); },
    .at_rollback = [](const pg::Subtransaction &s) { note(name, "at_rollback", s.level); },
};
constexpr pg::TransactionUser silent{};
constexpr std::array users{&noting<'a'>, &silent, &pg::table_events, &noting<'b'>};

} // namespace

namespace {

enum class PairColumn : uint8 { first, second };
constinit std::array pairs{
    pg::Select<PairColumn>{"SELECT 'a' AS first, 'b' AS second"},
    pg::Select<PairColumn>{"SELECT 'b' AS second, 'a' AS first"},
    pg::Select<PairColumn>{"SELECT 'a' AS first, 'b' AS second, 'c' AS third"},
};

} // namespace

// select_pair(number integer) -> text: the first and the second column of one of these results
STACKSAGA_FUNCTION(select_pair) {
    const int32 number = PG_GETARG_INT32(0);
    const MemoryContext outside = CurrentMemoryContext;
    char *text = pg::with_spi([&] {
        const auto rows = pairs[static_cast<size_t>(number)].run();
        return MemoryContextStrdup(outside,
                                   psprintf("%.1s%.1s", rows.text(0, PairColumn::first).data(),
                                            rows.text(0, PairColumn::second).data()));
    });
    PG_RETURN_TEXT_P(pg::make_text(text));
}

// note_events() -> void: from now on
STACKSAGA_FUNCTION(note_events) {
    (void)fcinfo;
    events.is_on = true;
    PG_RETURN_VOID();
}

// events() -> text: what has run since then, or since it was asked last
STACKSAGA_FUNCTION(events) {
    (void)fcinfo;
    const std::string_view text{events.text.data(), std::exchange(events.size, 0)};
    PG_RETURN_TEXT_P(pg::make_text(text));
}

// obstacle() -> text
STACKSAGA_FUNCTION(thing_obstacle) {
    const char *obstacle = things.obstacle();
    if (obstacle == nullptr)
        PG_RETURN_NULL();
    PG_RETURN_TEXT_P(cstring_to_text(obstacle));
}

// batch(statement): runs it while the table is kept open
STACKSAGA_FUNCTION(thing_batch) {
    const pg::Arguments arguments(fcinfo);
    pg::with_tables(std::array{&things}, [&] {
        pg::with_tables(std::array{&things}, [&] { run_meanwhile(arguments, 0); });
        things.find({.key = {}, .limit = 1});
    });
    PG_RETURN_VOID();
}

// find(index, key, key_columns, after, upto, inclusive, max_rows, lock, skip) -> SETOF thing
STACKSAGA_FUNCTION(thing_find) {
    const pg::Arguments arguments(fcinfo);
    const auto index = static_cast<size_t>(arguments.required_int4(0, "index"));
    const Key key = key_of(index, arguments.datum(1));
    pg::ResultSet result(fcinfo);
    const std::span<pg::TableRow> rows = things.find(
        {.index = index,
         .key = std::span(key).first(static_cast<size_t>(arguments.required_int4(2, "columns"))),
         .lower = bound_of(arguments, 3, 5),
         .upper = bound_of(arguments, 4, 5),
         .limit = static_cast<uint64>(arguments.required_int4(6, "max_rows")),
         .lock = lock_of(arguments.required_text(7, "lock")),
         .if_locked =
             arguments.required_bool(8, "skip") ? pg::IfLocked::skip : pg::IfLocked::wait});
    for (const pg::TableRow &row : rows)
        result.add_row(row.values.data(), row.nulls.data());
    return result.finish();
}

// insert(thing[])
STACKSAGA_FUNCTION(thing_insert) {
    ArrayType *array = PG_GETARG_ARRAYTYPE_P(0);
    Datum *elements;
    int count;
    deconstruct_array(array, ARR_ELEMTYPE(array), -1, false, TYPALIGN_DOUBLE, &elements, nullptr,
                      &count);
    auto *rows =
        static_cast<Assignments *>(palloc(sizeof(Assignments) * static_cast<size_t>(count)));
    auto *spans = static_cast<std::span<const pg::Assignment> *>(
        palloc(sizeof(std::span<const pg::Assignment>) * static_cast<size_t>(count)));
    for (int i = 0; i < count; ++i) {
        rows[i] = assignments_of(elements[i]);
        spans[i] = rows[i];
    }
    things.insert_many({spans, static_cast<size_t>(count)});
    PG_RETURN_VOID();
}

// insert_visible(thing) -> boolean
STACKSAGA_FUNCTION(thing_insert_visible) {
    PG_RETURN_BOOL(things.insert_visible(assignments_of(PG_GETARG_DATUM(0))));
}

// insert_if_absent(thing, known_absent boolean) -> boolean
STACKSAGA_FUNCTION(thing_insert_if_absent) {
    PG_RETURN_BOOL(
        things.insert_if_absent(assignments_of(PG_GETARG_DATUM(0)),
                                PG_GETARG_BOOL(1) ? pg::KnownRow::no : pg::KnownRow::maybe));
}

// update(key thing, changes thing, columns integer[], lock, meanwhile) -> boolean; null: no such
// row
STACKSAGA_FUNCTION(thing_update) {
    const pg::Arguments arguments(fcinfo);
    std::optional<pg::TableRow> row =
        find_by_key(arguments.datum(0), arguments.required_text(3, "lock"));
    if (!row)
        PG_RETURN_NULL();
    run_meanwhile(arguments, 4);
    const Assignments all = assignments_of(arguments.datum(1));
    Assignments changes{};
    Datum *numbers;
    int count;
    deconstruct_array(PG_GETARG_ARRAYTYPE_P(2), INT4OID, 4, true, TYPALIGN_INT, &numbers, nullptr,
                      &count);
    for (int i = 0; i < count; ++i)
        changes[static_cast<size_t>(i)] = all[static_cast<size_t>(DatumGetInt32(numbers[i]) - 1)];
    PG_RETURN_BOOL(things.update(*row, std::span(changes).first(static_cast<size_t>(count))));
}

// remove(key thing, lock, meanwhile) -> boolean; null: no such row
STACKSAGA_FUNCTION(thing_remove) {
    const pg::Arguments arguments(fcinfo);
    const std::optional<pg::TableRow> row =
        find_by_key(arguments.datum(0), arguments.required_text(1, "lock"));
    if (!row)
        PG_RETURN_NULL();
    run_meanwhile(arguments, 2);
    PG_RETURN_BOOL(things.remove(*row));
}

} // namespace stacksaga

extern "C" void _PG_init(void) {
    stacksaga::pg::set_transaction_users(stacksaga::users);
}
