#include "src/handler/session/temporary_objects.hpp"

#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "pg/statement/select.hpp"
#include "src/handler/running_handler.hpp"
#include "src/handler/session/session_guard.hpp"

namespace stacksaga {

namespace {

// Every object of a schema depends on it. As text they are what has to stay: with the row of each
// that says so, since replacing an object writes it again, the row of each relation, and what
// depends on an object: triggers, rules, defaults.
#define OF_SCHEMA                                                                                  \
    " pg_catalog.pg_depend AS d WHERE d.refclassid = 'pg_catalog.pg_namespace'::regclass"          \
    " AND d.refobjid = $1::oid"
enum class ObjectColumn : uint8_t { classid, objid };
constinit pg::Select<ObjectColumn> list_objects{"SELECT d.classid, d.objid FROM" OF_SCHEMA};
constinit pg::Statement describe_objects{
    "WITH own AS (SELECT d.classid, d.objid, d.xmin AS version FROM" OF_SCHEMA ")"
    " SELECT coalesce(string_agg(concat_ws(' ', s.a, s.b, s.c), ',' ORDER BY s.a, s.b, s.c::text), '')"
    " FROM ("
    "SELECT o.classid AS a, o.objid AS b, o.version AS c FROM own AS o"
    " UNION ALL SELECT c.tableoid, c.oid, c.xmin FROM pg_catalog.pg_class AS c JOIN own AS o"
    " ON o.classid = 'pg_catalog.pg_class'::regclass AND o.objid = c.oid"
    " UNION ALL SELECT a.tableoid, a.attrelid, a.xmin FROM pg_catalog.pg_attribute AS a JOIN own AS o"
    " ON o.classid = 'pg_catalog.pg_class'::regclass AND o.objid = a.attrelid"
    " UNION ALL SELECT d.classid, d.objid, d.xmin FROM pg_catalog.pg_depend AS d JOIN own AS o"
    " ON d.refclassid = o.classid AND d.refobjid = o.objid) AS s"};
// Objects that an unqualified name can find: relations and types.
constinit pg::Statement find_object_of_other{
    "SELECT FROM" OF_SCHEMA "   AND NOT pg_has_role(CASE d.classid"
    "       WHEN 'pg_catalog.pg_class'::regclass"
    "       THEN (SELECT c.relowner FROM pg_catalog.pg_class AS c WHERE c.oid = d.objid)"
    "       WHEN 'pg_catalog.pg_type'::regclass"
    "       THEN (SELECT t.typowner FROM pg_catalog.pg_type AS t WHERE t.oid = d.objid)"
    "       END, $2::oid, 'MEMBER') LIMIT 1"};

/// Of the caller of run_pending(), in a memory context of their own until it returns.
struct CallersObjects {
    MemoryContext memory = nullptr; ///< nullptr: it has none
    const char *description = nullptr;
    std::span<const ObjectAddress> objects{};
    Oid allowed_to = InvalidOid; ///< a definer that may find them
};
constinit CallersObjects callers{};

// PostgreSQL notes in each transaction whether it has used a temporary object. The note is taken
// away while a handler runs, which leaves one if it uses any, and put back.
constinit int kept_note = 0;
constinit bool has_run_utility = false;

/// The schema of the session's temporary objects; InvalidOid: it has never had one.
Oid temporary_schema() {
    Oid schema, toast_schema;
    GetTempNamespaceState(&schema, &toast_schema);
    return schema;
}

/// Copied to the current memory context.
const char *describe(Oid schema) {
    MemoryContext memory = CurrentMemoryContext;
    return pg::with_spi([&] {
        const std::string_view text = describe_objects.run(pg::param(int64{schema})).text(0);
        return pg::in_context(memory, [&] { return pnstrdup(text.data(), text.size()); });
    });
}

std::span<const ObjectAddress> list(Oid schema) {
    MemoryContext memory = CurrentMemoryContext;
    return pg::with_spi([&] {
        const auto rows = list_objects.run(pg::param(int64{schema}));
        auto *first = static_cast<ObjectAddress *>(
            MemoryContextAlloc(memory, sizeof(ObjectAddress) * (rows.count() + 1)));
        for (uint64 i = 0; i < rows.count(); ++i)
            ObjectAddressSet(first[i], DatumGetObjectId(rows.value(i, ObjectColumn::classid)),
                             DatumGetObjectId(rows.value(i, ObjectColumn::objid)));
        return std::span<const ObjectAddress>{first, rows.count()};
    });
}

bool is_callers(Oid class_id, Oid object_id) {
    return std::ranges::any_of(callers.objects, [&](const ObjectAddress &o) {
        return o.classId == class_id && o.objectId == object_id;
    });
}

/// Those which the caller does not have. Fires no event triggers.
void drop_others(Oid schema) {
    ObjectAddresses *created = new_object_addresses();
    for (const ObjectAddress &o : list(schema))
        if (!is_callers(o.classId, o.objectId))
            add_exact_object_address(&o, created);
    performMultipleDeletions(created, DROP_CASCADE,
                             PERFORM_DELETION_INTERNAL | PERFORM_DELETION_QUIETLY |
                                 PERFORM_DELETION_SKIP_EXTENSIONS);
    free_object_addresses(created);
}

} // namespace

void check_written(Oid relation) {
    if (callers.memory != nullptr && running_handler.is_active() &&
        is_callers(RelationRelationId, relation))
        leave_to_worker("the handler writes a temporary table that the session had before");
}

constinit const pg::TransactionUser temporary_object_events{
    .at_end = [] { kept_note = 0; },
    .at_rollback = [](const pg::Subtransaction &) { MyXactFlags |= kept_note; },
};

void note_temporary_objects() {
    if (callers.memory != nullptr)
        MemoryContextDelete(callers.memory);
    const Oid schema = temporary_schema();
    if (!OidIsValid(schema))
        return;
    MemoryContext memory = AllocSetContextCreate(
        TopTransactionContext, "stacksaga temporary objects", ALLOCSET_SMALL_SIZES);
    pg::in_context(memory, [&] {
        const std::span<const ObjectAddress> objects = list(schema);
        if (objects.empty())
            return;
        callers = {.memory = memory, .description = describe(schema), .objects = objects};
        static constinit MemoryContextCallback at_end{};
        at_end.func = [](void *) { callers = {}; };
        MemoryContextRegisterResetCallback(memory, &at_end);
    });
    if (callers.memory == nullptr)
        MemoryContextDelete(memory);
}

bool may_find_temporary_objects(Oid definer) {
    if (callers.memory == nullptr || callers.allowed_to == definer)
        return true;
    const Oid schema = temporary_schema();
    const bool are_all_its_own = pg::with_spi([&] {
        return find_object_of_other.run(pg::param(int64{schema}), pg::param(int64{definer}))
            .empty();
    });
    if (are_all_its_own)
        callers.allowed_to = definer;
    return are_all_its_own;
}

void begin_temporary_objects() {
    kept_note |= MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE;
    MyXactFlags &= ~XACT_FLAGS_ACCESSEDTEMPNAMESPACE;
    has_run_utility = false;
}

void note_utility_of_handler() {
    has_run_utility = true;
}

bool drop_temporary_objects() {
    const bool is_used = (MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) != 0;
    MyXactFlags |= kept_note;
    if (callers.memory == nullptr) {
        if (is_used)
            ResetTempTableNamespace();
        return true;
    }
    if (!is_used && !has_run_utility)
        return true;
    const Oid schema = temporary_schema();
    drop_others(schema);
    return strcmp(describe(schema), callers.description) == 0;
}

} // namespace stacksaga
