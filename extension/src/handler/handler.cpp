#include "src/handler/handler.hpp"

#include "pg/compat.hpp"
#include "pg/crash_point.hpp"
#include "pg/errors.hpp"
#include "pg/statement/function.hpp"
#include "pg/statement/query.hpp"
#include "pg/statement/scope.hpp"
#include "src/common/deferred_rows.hpp"
#include "src/handler/catalog_watch.hpp"
#include "src/handler/known_handler.hpp"
#include "src/handler/running_handler.hpp"
#include "src/handler/session/deferred_constraints.hpp"
#include "src/handler/session/handler_settings.hpp"
#include "src/handler/session/session_guard.hpp"

namespace stacksaga {

namespace {

/// As regprocedure prints it: it is stored and compared.
char *qualified_name(Oid function) {
    return pg::with_plain_names([&] { return format_procedure_qualified(function); });
}

/// Argument and result of a handler of each kind, and the messages when it has others.
struct HandlerShape {
    Oid argument;
    Oid result;
    const char *wrong_argument;
    const char *wrong_result;
    Oid other_result = InvalidOid; ///< which it may return as well
};

HandlerShape shape_of(HandlerKind kind) {
    static constexpr const char *takes_call = "its argument must be one stacksaga.step_call";
    static constexpr const char *takes_message = "its argument must be one stacksaga.message";
    static constexpr const char *takes_messages =
        "its argument must be one stacksaga.message, or one stacksaga.message[]";
    switch (kind) {
    case HandlerKind::action:
        return {type_of_schema("step_call"), JSONBOID, takes_call, "it must return jsonb"};
    case HandlerKind::verify:
        return {type_of_schema("step_call"), TEXTOID, takes_call, "it must return text or jsonb",
                JSONBOID};
    case HandlerKind::message:
        return {message_type(), VOIDOID, takes_message, "it must return void"};
    case HandlerKind::message_batch:
        return {get_array_type(message_type()), VOIDOID, takes_messages, "it must return void"};
    }
    pg_unreachable();
}

/// Why the function `oid` cannot be a handler of this kind for this role, or nullptr.
const char *objection(Oid oid, HandlerKind kind, Oid definer) {
    HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(oid));
    if (!HeapTupleIsValid(tuple))
        return "it does not exist";
    auto *form = reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple));
    const HandlerShape shape = shape_of(kind);
    const char *reason = nullptr;
    if (form->prokind != PROKIND_FUNCTION)
        reason = "it is not a plain function";
    else if (form->proretset)
        reason = "it returns a set";
    else if (form->pronargs != 1 || form->proargtypes.values[0] != shape.argument)
        reason = shape.wrong_argument;
    else if (form->prorettype != shape.result && form->prorettype != shape.other_result)
        reason = shape.wrong_result;
    const Oid schema = form->pronamespace;
    ReleaseSysCache(tuple);
    if (reason == nullptr && !pg::may_use_schema(schema, definer))
        reason = "the defining role lacks USAGE on its schema";
    if (reason == nullptr && !pg::may_execute(oid, definer))
        reason = "the defining role may not execute it";
    return reason;
}

/// Functions found by their name again (after a restore, say) must still belong to somebody whom
/// the definer trusts, or dropping a function would let another role put its own in that place.
bool is_trusted_replacement(Oid function, Oid definer) {
    HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    if (!HeapTupleIsValid(tuple))
        return false;
    Oid owner = reinterpret_cast<Form_pg_proc>(GETSTRUCT(tuple))->proowner;
    ReleaseSysCache(tuple);
    return owner == definer || superuser_arg(owner);
}

[[noreturn]] void raise_unusable(const FunctionRef &f, const HandlerCaller &c, const char *reason) {
    running_handler.note_unusable();
    ereport(ERROR,
            (errcode(pg::sg424), errmsg("function %s cannot be run: %s", f.signature, reason),
             errdetail("%s \"%s\".", c.describe(c.owner), c.definer.name),
             errhint("Create the function again with this signature, and repeat %s.", c.remedy)));
}

/// The role to call it as; what the definer's name stands for now may be another role.
Oid role_of(const HandlerCaller &c, const FunctionRef &f) {
    const char *reason = objection_to(c.definer);
    if (reason == nullptr)
        return c.definer.oid;
    running_handler.note_unusable();
    ereport(ERROR,
            (errcode(pg::sg424), errmsg("function %s cannot be run: %s", f.signature, reason),
             errdetail("%s \"%s\".", c.describe(c.owner), c.definer.name),
             errhint("As a superuser, SET ROLE to the role that it is to run as and repeat %s.",
                     c.remedy)));
}

/// The function to call now: the one of the definition, or its replacement under the same name.
Oid current_function(const FunctionRef &f, HandlerKind kind, const HandlerCaller &c, Oid definer) {
    if (SearchSysCacheExists1(PROCOID, ObjectIdGetDatum(f.oid)) &&
        strcmp(qualified_name(f.oid), f.signature) == 0) {
        const char *reason = objection(f.oid, kind, definer);
        if (reason != nullptr)
            raise_unusable(f, c, reason);
        return f.oid;
    }
    HandlerCheck found = resolve_handler(f.signature, kind, definer);
    if (found.reason != nullptr)
        raise_unusable(f, c, found.reason);
    if (!is_trusted_replacement(found.function, definer))
        raise_unusable(f, c, "it was replaced by another role's function");
    return found.function;
}

Datum jsonb_string(Datum text) {
    const std::string_view s = pg::view_of_text(text);
    JsonbValue value{};
    value.type = jbvString;
    value.val.string.val = const_cast<char *>(s.data());
    value.val.string.len = static_cast<int>(s.size());
    return JsonbPGetDatum(JsonbValueToJsonb(&value));
}

/// A type of the extension, looked up once for each call of a handler and more.
struct KnownType {
    std::string_view name;
    Oid oid = InvalidOid;
    uint64 found_at = 0;
};

Oid find_type(const char *name) {
    return GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, PointerGetDatum(name),
                           ObjectIdGetDatum(get_namespace_oid("stacksaga", false)));
}

/// The step's search_path with pg_temp last, so that no caller's temporary table comes first.
const char *handler_search_path(const char *path) {
    if (path == nullptr || path[0] == '\0')
        return "pg_temp";
    return psprintf("%s, pg_temp", path); // counts once where the path names it already
}

/// The handler as it may be called now. What was found before holds while nothing has changed that
/// it depends on; a refusal is not kept.
KnownHandler &find_handler(const HandlerCaller &caller, const FunctionRef &function,
                           HandlerKind kind) {
    const uint64 state = catalog_state();
    KnownHandler &handler = known_handler(caller, function, kind);
    if (handler.found_at != state) {
        handler.function = current_function(function, kind, caller, role_of(caller, function));
        handler.found_at = state;
    }
    if (handler.path_in_force == nullptr)
        handler.path_in_force =
            pg::in_context(handler.memory, [&] { return handler_search_path(caller.search_path); });
    return handler;
}

} // namespace

/// to_regprocedure raises for bad syntax and unknown types; here both just mean "not found".
Oid find_function(const char *text) {
    if (strchr(text, '(') == nullptr) // a bare number or name would be taken as well
        return InvalidOid;
    volatile Oid found = InvalidOid;
    MemoryContext memory = CurrentMemoryContext;
    ResourceOwner owner = CurrentResourceOwner;
    BeginInternalSubTransaction(nullptr);
    MemoryContextSwitchTo(memory);
    PG_TRY();
    {
        // Called through fmgr with a result flag, since "no such function" is a NULL.
        LOCAL_FCINFO(fcinfo, 1);
        InitFunctionCallInfoData(*fcinfo, nullptr, 1, InvalidOid, nullptr, nullptr);
        fcinfo->args[0].value = CStringGetTextDatum(text);
        fcinfo->args[0].isnull = false;
        Datum result = to_regprocedure(fcinfo);
        if (!fcinfo->isnull)
            found = DatumGetObjectId(result);
        ReleaseCurrentSubTransaction();
    }
    PG_CATCH();
    {
        MemoryContextSwitchTo(memory);
        FlushErrorState();
        RollbackAndReleaseCurrentSubTransaction();
    }
    PG_END_TRY();
    MemoryContextSwitchTo(memory);
    CurrentResourceOwner = owner;
    return found;
}

HandlerCheck resolve_handler(std::string_view text, HandlerKind kind, Oid definer) {
    HandlerCheck check;
    check.function = find_function(pnstrdup(text.data(), text.size()));
    if (!OidIsValid(check.function)) {
        check.reason = "there is no such function";
        return check;
    }
    check.signature = qualified_name(check.function);
    check.reason = objection(check.function, kind, definer);
    check.takes_other = check.reason == shape_of(kind).wrong_argument;
    return check;
}

const char *qualified_signature(std::string_view text) {
    const char *copy = pnstrdup(text.data(), text.size());
    Oid function = find_function(copy);
    return OidIsValid(function) ? qualified_name(function) : copy;
}

Oid type_of_schema(const char *name) {
    static constinit std::array<KnownType, 2> known{{{"step_call"}, {"message"}}};
    const uint64 state = catalog_state();
    auto *type = std::ranges::find(known, std::string_view{name}, &KnownType::name);
    if (type == known.end())
        return find_type(name);
    if (type->found_at != state)
        *type = {.name = type->name, .oid = find_type(name), .found_at = state};
    return type->oid;
}

Oid message_type() {
    return type_of_schema("message");
}

Datum call_as_definer(const HandlerCaller &caller, const FunctionRef &function, HandlerKind kind,
                      Datum argument, bool *isnull) {
    CommandCounterIncrement();    // what this transaction has changed is known,
    AcceptInvalidationMessages(); // and what others have committed
    KnownHandler &handler = find_handler(caller, function, kind);
    const Oid definer = caller.definer.oid;
    CRASH_POINT("handler: before it is entered");
    running_handler.run_as(definer);
    enter_session(definer);
    if (!running_handler.is_outermost())
        defer_what_has_become_deferred();

    Datum result = pg::as_role(definer, [&] {
        const pg::Setting path{"search_path", handler.path_in_force};
        return pg::with_settings({&path, 1}, [&] {
            if (!running_handler.is_at_top_level())
                set_handler_settings(definer);
            PushActiveSnapshot(GetTransactionSnapshot());
            Datum value = handler.callable.call(handler.function, argument, isnull);
            CRASH_POINT("handler: before deferred constraints");
            write_deferred_rows(); // an error is the handler's
            PopActiveSnapshot();
            fire_deferred_constraints();
            if (running_handler.is_at_top_level())
                PortalHashTableDeleteAll(); // the next handler may open cursors of the same names
            CRASH_POINT("handler: after deferred constraints");
            return value;
        });
    });
    if (kind == HandlerKind::verify && !*isnull && get_func_rettype(handler.function) == TEXTOID)
        result = jsonb_string(result);
    reset_constraints();
    leave_session();
    return result;
}

} // namespace stacksaga
