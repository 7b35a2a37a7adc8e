#include "src/definition/stored_definition.hpp"

#include "core/saga/definition.hpp"
#include "core/saga/saga_state.hpp"
#include "core/saga/step_kind.hpp"

#include "pg/citus/citus.hpp"
#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "pg/table/lookup.hpp"
#include "pg/table/relation_change.hpp"
#include "src/common/limits.hpp"
#include "src/handler/handler.hpp"

namespace stacksaga {

namespace {

enum class DefinitionColumn : uint8 { definition_id = 1, saga };
constexpr std::array definition_columns{
    pg::TableColumn{"definition_id", INT4OID},
    pg::TableColumn{"saga", TEXTOID},
};
constexpr std::array definition_indexes{
    pg::TableIndex{.name = "saga_definition_current",
                   .key = {DefinitionColumn::saga},
                   .is_unique = true,
                   .predicate = "is_current"},
};

struct CacheEntry {
    int32 definition_id; // hash key
    MemoryContext memory;
    Definition *definition;
};

constinit HTAB *cache = nullptr;
// Ids start again from 1 when the extension is dropped and created: the cache belongs to one table.
constinit Oid cached_table = InvalidOid;
// A refresh invalidates the table, in this session also when the refresh is rolled back.
constinit bool is_stale = false;
// On Citus a refresh invalidates nothing on other nodes, so there each transaction reads again.
constinit LocalTransactionId read_in = InvalidLocalTransactionId; ///< the one that began the cache

enum class HeadColumn : uint8_t {
    saga,
    version,
    definer,
    definer_oid,
    deadline,
    on_compensation_failure,
    on_failure,
    events_topic,
    keep,
    max_attempts,
    initial_interval,
    multiplier,
    max_interval,
    jitter,
    retry_on,
    never_on,
};
constinit pg::Select<HeadColumn> select_definition{
    "SELECT saga, version, definer::text, definer_oid, deadline, on_compensation_failure,"
    "       on_failure, events_topic, keep,"
    "       (compensation_retry).max_attempts, (compensation_retry).initial_interval,"
    "       (compensation_retry).multiplier, (compensation_retry).max_interval,"
    "       (compensation_retry).jitter, (compensation_retry).retry_on,"
    "       (compensation_retry).never_on"
    "  FROM stacksaga.saga_definition AS d WHERE definition_id = $1",
    pg::Reads::this_node};
enum class StepColumn : uint8_t {
    step_no,
    stage,
    kind,
    step,
    queue,
    action,
    action_oid,
    compensation,
    compensation_oid,
    verify,
    verify_oid,
    search_path,
    timeout,
    effect,
    compensate_when,
    signal,
    delay,
    child_saga,
    fallback,
    fallback_oid,
    topic,
    compensation_topic,
    compensation_queue,
    fallback_compensation_topic,
    on_failure,
    max_attempts,
    initial_interval,
    multiplier,
    max_interval,
    jitter,
    retry_on,
    never_on,
};
constinit pg::Select<StepColumn> select_steps{
    "SELECT step_no, stage, kind, step, queue, action, action_oid, compensation, compensation_oid,"
    "       verify, verify_oid, search_path, timeout, effect, compensate_when, signal, delay,"
    "       child_saga, fallback, fallback_oid, topic, compensation_topic, compensation_queue,"
    "       fallback_compensation_topic, on_failure,"
    "       (retry).max_attempts, (retry).initial_interval, (retry).multiplier,"
    "       (retry).max_interval, (retry).jitter, (retry).retry_on, (retry).never_on"
    "  FROM stacksaga.definition_step AS s WHERE definition_id = $1 ORDER BY step_no",
    pg::Reads::this_node};
constinit pg::Statement select_current{
    "SELECT definition_id FROM stacksaga.saga_definition AS d WHERE saga = $1 AND is_current",
    pg::Reads::this_node};
constinit pg::Statement select_version{
    "SELECT definition_id FROM stacksaga.saga_definition AS d WHERE saga = $1 AND version = $2",
    pg::Reads::this_node};

StepFunctions read_functions(const pg::RowsOf<StepColumn> &rows, uint64 row, const Step &step) {
    using Column = StepColumn;
    StepFunctions f{};
    f.action = read_function(rows, row, Column::action, Column::action_oid);
    f.compensation = read_function(rows, row, Column::compensation, Column::compensation_oid);
    f.verify = read_function(rows, row, Column::verify, Column::verify_oid);
    f.search_path = copy_text(rows.optional_text(row, Column::search_path));
    if (step.traits().fallback == core::FallbackKind::function)
        f.fallback = read_function(rows, row, Column::fallback, Column::fallback_oid);
    f.retry = read_rules(rows, row);
    return f;
}

Step read_step(const pg::RowsOf<StepColumn> &rows, uint64 row) {
    using Column = StepColumn;
    const auto text = [&](Column column) {
        return copy_view(rows.optional_text(row, column).value_or(""));
    };
    std::string_view effect = rows.text(row, Column::effect);
    Step s{};
    s.no = rows.int2(row, Column::step_no);
    s.stage = rows.int2(row, Column::stage);
    s.kind = *core::step_kind_of(rows.text(row, Column::kind));
    s.name = copy_view(rows.text(row, Column::step));
    s.queue = text(Column::queue);
    s.timeout = core::no_timeout;
    if (!rows.is_null(row, Column::timeout))
        s.timeout = pg::interval_length(rows.value(row, Column::timeout), "timeout", false);
    s.signal = text(Column::signal);
    if (!rows.is_null(row, Column::delay))
        s.delay = pg::interval_length(rows.value(row, Column::delay), "delay", false);
    s.child_saga = text(Column::child_saga);
    s.has_verify = !rows.is_null(row, Column::verify);
    s.has_fallback = !rows.is_null(row, Column::fallback);
    if (s.traits().fallback != core::FallbackKind::function)
        s.fallback_queue = text(Column::fallback);
    // A definition of an earlier version may name a compensation beside another effect: the engine
    // runs it.
    s.compensable = effect == "compensable" || !rows.is_null(row, Column::compensation);
    s.irreversible = effect == "irreversible";
    s.idempotent = effect == "idempotent";
    s.compensate_when_started = rows.text(row, Column::compensate_when) == "started";
    s.topic = text(Column::topic);
    s.compensation_topic = text(Column::compensation_topic);
    s.compensation_queue = text(Column::compensation_queue);
    s.fallback_compensation_topic = text(Column::fallback_compensation_topic);
    s.on_failure = *core::on_failure_of(rows.text(row, Column::on_failure));
    return s;
}

Definition *read_definition(int32 id) {
    const auto head = select_definition.run(pg::param(id));
    if (head.empty())
        elog(ERROR, "saga definition %d does not exist", id);
    auto *d = new (palloc0(sizeof(Definition))) Definition{};
    d->id = id;
    d->saga = copy_view(head.text(0, HeadColumn::saga));
    d->version = head.int4(0, HeadColumn::version);
    d->definer = read_definer(head, 0);
    if (!head.is_null(0, HeadColumn::deadline))
        d->deadline = pg::interval_length(head.value(0, HeadColumn::deadline), "deadline", true);
    d->continue_compensating = head.text(0, HeadColumn::on_compensation_failure) == "continue";
    d->on_failure = *core::on_failure_of(head.text(0, HeadColumn::on_failure));
    d->events_topic = copy_view(head.optional_text(0, HeadColumn::events_topic).value_or(""));
    if (!head.is_null(0, HeadColumn::keep))
        d->keep_us = pg::signed_microseconds(head.value(0, HeadColumn::keep), "keep");
    d->compensation_retry = read_rules(head, 0);
    d->compensation_policy = d->compensation_retry.policy;

    const auto rows = select_steps.run(pg::param(id));
    auto *steps = static_cast<Step *>(palloc0(sizeof(Step) * rows.count()));
    auto *functions = static_cast<StepFunctions *>(palloc0(sizeof(StepFunctions) * rows.count()));
    for (uint64 i = 0; i < rows.count(); ++i) {
        steps[i] = read_step(rows, i);
        functions[i] = read_functions(rows, i, steps[i]);
        steps[i].policy = functions[i].retry.policy;
        d->stages = std::max(d->stages, steps[i].stage);
        d->has_children = d->has_children || steps[i].waits_for() == core::StepWait::child;
        d->has_signals = d->has_signals || steps[i].waits_for() == core::StepWait::signal;
    }
    d->steps = {steps, rows.count()};
    d->functions = {functions, rows.count()};
    if (has_own_oids()) // by names, which services' calls would look up in the caller's path
        pg::with_pinned_path([&] { use_own_oids(*d, {functions, rows.count()}); });
    return d;
}

void note_table_change(Datum, Oid table) {
    if (table == cached_table || !OidIsValid(table))
        is_stale = true;
}

void reset_cache_of(Oid table) {
    static constinit bool is_registered = false;
    if (!is_registered) {
        pg::watch_relations(note_table_change);
        is_registered = true;
    }
    if (cache != nullptr) {
        HASH_SEQ_STATUS status;
        hash_seq_init(&status, cache);
        // Callers up the stack may use it until the end of the transaction, which frees it.
        while (auto *entry = static_cast<CacheEntry *>(hash_seq_search(&status)))
            MemoryContextSetParent(entry->memory, TopTransactionContext);
        hash_destroy(cache);
        cache = nullptr;
    }
    is_stale = false;
    read_in = pg::local_transaction_id();
    HASHCTL control{};
    control.keysize = sizeof(int32);
    control.entrysize = sizeof(CacheEntry);
    cache = hash_create("stacksaga definitions", 64, &control, HASH_ELEM | HASH_BLOBS);
    cached_table = table;
}

/// Reads without a statement, and returns nothing where the table cannot be read that way.
std::optional<int32> look_up_current(std::string_view saga) {
    const pg::KeyColumn key{F_TEXTEQ, DEFAULT_COLLATION_OID, PointerGetDatum(pg::make_text(saga))};
    std::optional<int32> id;
    (void)pg::try_index(definition_table, DefinitionIndex::current, [&](pg::IndexReader &reader) {
        reader.seek({&key, 1});
        bool isnull;
        if (TupleTableSlot *row = reader.next(); row != nullptr)
            id = DatumGetInt32(slot_getattr(row, 1, &isnull));
    });
    return id;
}

} // namespace

constinit pg::Table definition_table{{.name = "saga_definition",
                                      .columns = definition_columns,
                                      .indexes = definition_indexes,
                                      .described = pg::Described::what_is_read}};

const Definition &load_definition(int32 definition_id) {
    Oid table = get_relname_relid("saga_definition", get_namespace_oid("stacksaga", false));
    if (cache == nullptr || is_stale || table != cached_table ||
        (read_in != pg::local_transaction_id() && pg::is_managed_by_citus(table)))
        reset_cache_of(table);
    auto *entry = static_cast<CacheEntry *>(hash_search(cache, &definition_id, HASH_FIND, nullptr));
    if (entry != nullptr)
        return *entry->definition;

    // Built in a context that the transaction frees if reading fails, and kept afterwards.
    MemoryContext memory =
        AllocSetContextCreate(CurrentMemoryContext, "stacksaga definition", ALLOCSET_SMALL_SIZES);
    Definition *d = pg::in_context(memory, [&] { return read_definition(definition_id); });
    MemoryContextSetParent(memory, CacheMemoryContext);
    entry = static_cast<CacheEntry *>(hash_search(cache, &definition_id, HASH_ENTER, nullptr));
    entry->memory = memory;
    entry->definition = d;
    return *d;
}

void refresh_definitions() {
    pg::announce_change("saga_definition");
    is_stale = true;
}

const Definition &find_definition(std::string_view saga, std::optional<int32> version) {
    if (const std::optional<int32> id = version ? std::nullopt : look_up_current(saga))
        return load_definition(*id);
    pg::Rows rows = version ? select_version.run(pg::param(saga), pg::param(*version))
                            : select_current.run(pg::param(saga));
    if (rows.empty()) {
        const std::string_view cut{saga.data(), std::min<size_t>(saga.size(), name_bytes_max)};
        if (version)
            ereport(ERROR, (errcode(pg::sg404),
                            errmsg("saga \"%s\" has no version %d", printable(cut), *version),
                            errdetail("No definition has this name and this version."),
                            errhint("Leave version out to take the current one.")));
        ereport(ERROR, (errcode(pg::sg404), errmsg("saga \"%s\" is not defined", printable(cut)),
                        errdetail("No version of it has been defined in this database."),
                        errhint("Define it with stacksaga.define_saga().")));
    }
    return load_definition(rows.int4(0));
}

// ------------------------------------------------------------------------------- oids of this node

namespace {

constinit pg::Statement is_worker{"SELECT groupid <> 0 FROM pg_catalog.pg_dist_local_group",
                                  pg::Plans::by_statistics};
constinit pg::Statement find_oid{"SELECT local_oid FROM stacksaga.citus_oid"
                                 " WHERE kind = $1 AND name = $2 AND defined_oid = $3"};
constinit pg::Statement insert_oid{"INSERT INTO stacksaga.citus_oid VALUES ($1, $2, $3, $4)"
                                   " ON CONFLICT DO NOTHING"};

/// The local oid of a name; `look_up` finds it when this node asks first. A name that is unknown
/// here keeps the oid of the defining node, under which nothing of that name exists here.
template <class F> Oid own_oid(std::string_view kind, const char *name, Oid defined, F &&look_up) {
    const pg::Param its_kind = pg::param(kind), its_name = pg::param(std::string_view{name}),
                    key = pg::param_datum(OIDOID, ObjectIdGetDatum(defined));
    const pg::Rows known = find_oid.run(its_kind, its_name, key);
    if (!known.empty())
        return DatumGetObjectId(known.value(0));
    const Oid found = look_up();
    if (!OidIsValid(found))
        return defined;
    if (!XactReadOnly && !RecoveryInProgress() && !IsInParallelMode())
        insert_oid.touch(its_kind, its_name, key, pg::param_datum(OIDOID, ObjectIdGetDatum(found)));
    return found;
}

void use_own_oid(FunctionRef &f) {
    if (!f)
        return;
    f.oid = own_oid("function", f.signature, f.oid, [&] { return find_function(f.signature); });
}

} // namespace

bool has_own_oids() {
    const Oid table = get_relname_relid("saga_definition", get_namespace_oid("stacksaga", false));
    return pg::is_managed_by_citus(table) && is_worker.run().boolean(0);
}

void use_own_oids(Definition &definition, std::span<StepFunctions> functions) {
    const Definer &definer = definition.definer;
    definition.definer.oid = own_oid("role", definer.name, definer.oid,
                                     [&] { return get_role_oid(definer.name, true); });
    for (StepFunctions &f : functions) {
        use_own_oid(f.action);
        use_own_oid(f.compensation);
        use_own_oid(f.verify);
        use_own_oid(f.fallback);
    }
}

} // namespace stacksaga
