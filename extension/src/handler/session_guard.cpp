#include "src/handler/session_guard.hpp"

#include "pg/query.hpp"
#include "pg/scope.hpp"
#include "src/handler/running_handler.hpp"

namespace stacksaga {

namespace {

constinit object_access_hook_type next_hook = nullptr;

// Every object of a schema depends on it.
#define TEMPORARY_OBJECTS                                                                          \
    " pg_catalog.pg_depend AS d WHERE d.refclassid = 'pg_catalog.pg_namespace'::regclass"          \
    " AND d.refobjid = $1::oid"
constinit pg::Statement list_objects{
    "SELECT coalesce(string_agg(d.classid || '/' || d.objid, ',' ORDER BY d.classid, d.objid), '')"
    " FROM" TEMPORARY_OBJECTS};
// What an unqualified name can find: relations and types.
constinit pg::Statement find_object_of_other{
    "SELECT FROM" TEMPORARY_OBJECTS "   AND NOT pg_has_role(CASE d.classid"
    "       WHEN 'pg_catalog.pg_class'::regclass"
    "       THEN (SELECT c.relowner FROM pg_catalog.pg_class AS c WHERE c.oid = d.objid)"
    "       WHEN 'pg_catalog.pg_type'::regclass"
    "       THEN (SELECT t.typowner FROM pg_catalog.pg_type AS t WHERE t.oid = d.objid)"
    "       END, $2::oid, 'MEMBER') LIMIT 1"};
constinit pg::Statement list_cursors{"SELECT name FROM pg_catalog.pg_cursors"};

[[noreturn]] void leave_to_worker(const char *why) {
    running_handler.note_for_worker();
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("%s", why),
                    errhint("Let a worker run it: worker_ensure() starts one.")));
}

/// The schema of the session's temporary objects; InvalidOid: it has never had one.
Oid temporary_schema() {
    Oid schema, toast_schema;
    GetTempNamespaceState(&schema, &toast_schema);
    return schema;
}

const char *temporary_objects() {
    const Oid schema = temporary_schema();
    if (!OidIsValid(schema))
        return "";
    MemoryContext memory = CurrentMemoryContext;
    return pg::with_spi([&] {
        const std::string_view list = list_objects.run(pg::param(int64{schema})).text(0, 0);
        return pg::in_context(memory, [&] { return pnstrdup(list.data(), list.size()); });
    });
}

/// Opened since this subtransaction began, and not closed.
bool has_open_cursor() {
    return pg::with_spi([] {
        pg::Rows rows = list_cursors.run();
        for (uint64 i = 0; i < rows.count(); ++i) {
            const std::string_view name = rows.text(i, 0);
            Portal portal = GetPortalByName(pnstrdup(name.data(), name.size()));
            if (PortalIsValid(portal) && portal->createSubid == GetCurrentSubTransactionId())
                return true;
        }
        return false;
    });
}

/// Session locks are neither given back by a rollback, nor can be told from those that the session
/// had before: so the functions that take them, or give them back, are refused.
void check_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id,
                  void *argument) {
    if (next_hook != nullptr)
        next_hook(access, class_id, object_id, sub_id, argument);
    if (access == OAT_FUNCTION_EXECUTE && running_handler.is_active() &&
        !running_handler.is_at_top_level() && object_id >= F_PG_ADVISORY_LOCK_INT8 &&
        object_id <= F_PG_ADVISORY_UNLOCK_ALL)
        leave_to_worker("the handler takes, or gives back, a lock of the session");
}

} // namespace

const char *enter_session(Oid definer) {
    const Oid schema = temporary_schema();
    if (OidIsValid(schema) && pg::with_spi([&] {
            return !find_object_of_other.run(pg::param(int64{schema}), pg::param(int64{definer}))
                        .empty();
        }))
        leave_to_worker(
            "the session has temporary objects of another role, which the handler could "
            "take for its own");
    return temporary_objects();
}

void leave_session(const char *objects) {
    if (running_handler.is_for_worker())
        leave_to_worker("the handler takes, or gives back, a lock of the session");
    if (strcmp(objects, temporary_objects()) != 0)
        leave_to_worker("the handler leaves temporary objects in the session");
    if (has_open_cursor())
        leave_to_worker("the handler leaves an open cursor in the session");
}

void guard_session_locks() {
    next_hook = object_access_hook;
    object_access_hook = check_access;
}

} // namespace stacksaga
