#include "src/handler/session/foreign_sessions.hpp"

#include "core/common/session_cache.hpp"

#include "pg/statement/attempt.hpp"
#include "src/handler/catalog_watch.hpp"
#include "src/handler/running_handler.hpp"
#include "src/handler/session/session_guard.hpp"

namespace stacksaga {

namespace {

constexpr std::string_view dblink = "dblink";
constexpr std::string_view connects = "dblink_connect"; // dblink_connect_u() has the same symbol

// Whether connections may be open, of handlers and of others. Others cannot be asked whether they
// have closed theirs: the one without a name shows in no list.
constinit bool has_of_handlers = false;
constinit bool has_of_others = false;
// PL/pgSQL keeps an expression ready until the transaction ends, and what it calls then is only
// seen the first time.
constinit bool is_used_in_transaction = false;
constinit std::array<char, MAXPGPATH> library{}; ///< as its functions name it

/// The symbol of a function in the library of dblink; empty: it is another function.
std::string_view symbol_of(Oid function) {
    HeapTuple row = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    if (!HeapTupleIsValid(row))
        return {};
    std::string_view symbol;
    if (reinterpret_cast<Form_pg_proc>(GETSTRUCT(row))->prolang == ClanguageId) {
        bool isnull;
        const Datum file = SysCacheGetAttr(PROCOID, row, Anum_pg_proc_probin, &isnull);
        const char *path = isnull ? "" : TextDatumGetCString(file);
        const char *slash = strrchr(path, '/');
        if (std::string_view(slash != nullptr ? slash + 1 : path).starts_with(dblink)) {
            symbol =
                TextDatumGetCString(SysCacheGetAttr(PROCOID, row, Anum_pg_proc_prosrc, &isnull));
            strlcpy(library.data(), path, library.size());
        }
    }
    ReleaseSysCache(row);
    return symbol;
}

// Every function that a statement calls is asked about, also where no handler ever runs.
bool is_of_dblink(Oid function) {
    static constinit core::SessionCache<bool, 32> known{};
    return known.value(
        function, [&] { return !symbol_of(function).empty(); }, catalog_state());
}

PGFunction dblink_function(const char *symbol) {
    return reinterpret_cast<PGFunction>(
        load_external_function(library.data(), symbol, true, nullptr));
}

/// The names of the connections; nullptr: none has a name.
ArrayType *list_names() {
    LOCAL_FCINFO(fcinfo, 1);
    InitFunctionCallInfoData(*fcinfo, nullptr, 0, InvalidOid, nullptr, nullptr);
    const Datum names = dblink_function("dblink_get_connections")(fcinfo);
    return fcinfo->isnull ? nullptr : DatumGetArrayTypeP(names);
}

/// The one without a name. 08003 where there is none.
void disconnect_unnamed() {
    (void)pg::attempt_expecting(
        [](const ErrorData &error) {
            return error.sqlerrcode == ERRCODE_CONNECTION_DOES_NOT_EXIST;
        },
        [] {
            LOCAL_FCINFO(fcinfo, 1);
            InitFunctionCallInfoData(*fcinfo, nullptr, 0, InvalidOid, nullptr, nullptr);
            (void)dblink_function("dblink_disconnect")(fcinfo);
        });
}

void note_use() {
    has_of_handlers = true;
    is_used_in_transaction = true;
}

[[noreturn]] void leave_dblink_to_worker() {
    leave_to_worker("the session may have connections of dblink, which the handler could take for "
                    "its own");
}

void close_dblink() {
    has_of_handlers = false;
    if (ArrayType *names = list_names(); names != nullptr) {
        Datum *items;
        int count;
        deconstruct_array(names, TEXTOID, -1, false, TYPALIGN_INT, &items, nullptr, &count);
        for (int i = 0; i < count; ++i)
            (void)DirectFunctionCall1(dblink_function("dblink_disconnect"), items[i]);
    }
    disconnect_unnamed();
}

} // namespace

constinit const pg::TransactionUser foreign_session_events{
    .at_end = [] { is_used_in_transaction = false; },
};

void note_function_of_others(Oid function) {
    if (!is_of_dblink(function))
        return;
    if (running_handler.is_active()) {
        if (has_of_others && !running_handler.is_at_top_level())
            leave_dblink_to_worker();
        note_use();
        return;
    }
    if (has_of_handlers) // an error has ended the handler, and the call of run_pending() with it
        close_dblink();
    has_of_others = has_of_others || symbol_of(function) == connects;
}

void close_idle_foreign_sessions() {
    CallSyscacheCallbacks(USERMAPPINGOID, 0); // as if every user mapping had changed
}

void hide_dblink_connections() {
    if (is_used_in_transaction && has_of_others && !running_handler.is_at_top_level())
        leave_dblink_to_worker();
}

void close_foreign_sessions() {
    if (has_of_handlers || is_used_in_transaction)
        close_dblink();
    close_idle_foreign_sessions();
}

void look_for_dblink() {
    char path[MAXPGPATH];
    snprintf(path, sizeof path, "%s/dblink%s", pkglib_path, DLSUFFIX);
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    has_of_others = handle != nullptr;
    if (handle != nullptr)
        dlclose(handle);
}

} // namespace stacksaga
