#include "src/handler/known_handler.hpp"

#include "pg/compat.hpp"
#include "pg/statement/scope.hpp"
#include "src/handler/catalog_watch.hpp"

namespace stacksaga {

namespace {

constexpr size_t key_size = offsetof(KnownHandler, memory);
static_assert(key_size == 4 * sizeof(uint32)); // no padding between its members

constinit HTAB *handlers = nullptr;

HTAB *make_table() {
    HASHCTL control{};
    control.keysize = key_size;
    control.entrysize = sizeof(KnownHandler);
    return hash_create("stacksaga handlers", 64, &control, HASH_ELEM | HASH_BLOBS);
}

bool is_same(const char *a, const char *b) {
    return a == b || (a != nullptr && b != nullptr && strcmp(a, b) == 0);
}

const char *copy(const char *text) {
    return text != nullptr ? pstrdup(text) : nullptr;
}

/// Not one that is SECURITY DEFINER or SETs something: PostgreSQL puts another function before
/// those.
bool is_plain_sql(Oid function) {
    FmgrInfo info;
    fmgr_info(function, &info);
    return info.fn_addr == fmgr_sql;
}

} // namespace

/// Plans again what has changed.
void HandlerFunction::check(Oid function) {
    const uint64 state = catalog_state();
    if (sql_ != nullptr &&
        !(is_of(*sql_, function) && (is_left_to_fmgr(*sql_) || can_be_run(*sql_))))
        free_sql_function(std::exchange(sql_, nullptr));
    if (sql_ == nullptr && !pg::sql_functions_keep_plans && is_plain_sql(function))
        sql_ = prepare_sql_function(function);
    function_ = function;
    checked_at_ = state;
}

/// nullptr: it is called through its language.
SqlFunction *HandlerFunction::sql_function(Oid function) {
    const bool is_known = function == function_ && checked_at_ == catalog_state();
    if (!is_known || (sql_ != nullptr && !is_left_to_fmgr(*sql_) && !can_be_run(*sql_)))
        check(function);
    return sql_ != nullptr && !is_left_to_fmgr(*sql_) ? sql_ : nullptr;
}

/// A language may keep in it what is good for a query: plans under the locks of this transaction,
/// or of this subtransaction, which it knows by itself. After an error it may hold a state that was
/// left half-way.
FmgrInfo &HandlerFunction::look_up(Oid function) {
    const uint64 state = call_state();
    if (looked_up_at_ == state && info_.fn_oid == function)
        return info_;
    looked_up_at_ = 0;
    if (memory_ == nullptr)
        memory_ = AllocSetContextCreate(TopMemoryContext, "stacksaga handler function",
                                        ALLOCSET_SMALL_SIZES);
    MemoryContextReset(memory_);
    fmgr_info_cxt(function, &info_, memory_);
    looked_up_at_ = state;
    return info_;
}

void HandlerFunction::forget() {
    if (sql_ != nullptr)
        free_sql_function(std::exchange(sql_, nullptr));
    checked_at_ = 0;
    looked_up_at_ = 0;
}

Datum HandlerFunction::call(Oid function, Datum argument, bool *isnull) {
    if (SqlFunction *sql = sql_function(function); sql != nullptr)
        return run_sql_function(*sql, argument, isnull);
    LOCAL_FCINFO(fcinfo, 1);
    InitFunctionCallInfoData(*fcinfo, &look_up(function), 1, InvalidOid, nullptr, nullptr);
    fcinfo->args[0].value = argument;
    fcinfo->args[0].isnull = false;
    const Datum result = FunctionCallInvoke(fcinfo);
    *isnull = fcinfo->isnull;
    return result;
}

KnownHandler &known_handler(const HandlerCaller &caller, const FunctionRef &function,
                            HandlerKind kind) {
    if (handlers == nullptr)
        handlers = make_table();
    const char *path = caller.search_path;
    KnownHandler wanted{.oid = function.oid,
                        .definer = caller.definer.oid,
                        .path_hash = path != nullptr
                                         ? hash_bytes(reinterpret_cast<const unsigned char *>(path),
                                                      static_cast<int>(strlen(path)))
                                         : 0,
                        .kind = static_cast<uint32>(kind)};
    bool is_there;
    auto &known =
        *static_cast<KnownHandler *>(hash_search(handlers, &wanted, HASH_ENTER, &is_there));
    if (!is_there)
        new (&known) KnownHandler{wanted};
    // An oid is used again in time, and means something else after a restore.
    if (is_there && is_same(known.signature, function.signature) &&
        is_same(known.definer_name, caller.definer.name) && is_same(known.search_path, path))
        return known;
    known.found_at = 0;
    known.signature = nullptr;
    known.callable.forget();
    if (known.memory == nullptr)
        known.memory =
            AllocSetContextCreate(TopMemoryContext, "stacksaga handler", ALLOCSET_SMALL_SIZES);
    MemoryContextReset(known.memory);
    pg::in_context(known.memory, [&] {
        known.definer_name = pstrdup(caller.definer.name);
        known.search_path = copy(path);
        known.path_in_force = nullptr;
        known.signature = pstrdup(function.signature);
    });
    return known;
}

} // namespace stacksaga
