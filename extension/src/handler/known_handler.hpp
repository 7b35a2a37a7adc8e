// A handler as it was looked up, kept until something that it depends on changes.
#pragma once
#include "pg/pg.hpp"
#include "src/handler/handler.hpp"
#include "src/handler/sql_function.hpp"

namespace stacksaga {

/// The function of a handler as it is called, with what is kept for its next call. Lives as long as
/// the session.
class HandlerFunction {
public:
    /// Calls `function` with one argument, as the role and with the search_path that are current,
    /// always the same ones for this object, inside a snapshot.
    Datum call(Oid function, Datum argument, bool *isnull);

    /// From now on it is called as another role or with another search_path.
    void forget();

private:
    SqlFunction *sql_function(Oid function);
    void check(Oid function);
    FmgrInfo &look_up(Oid function);

    Oid function_ = InvalidOid;
    uint64 checked_at_ = 0;
    SqlFunction *sql_ = nullptr; ///< nullptr where it is not in SQL
    uint64 looked_up_at_ = 0;
    MemoryContext memory_ = nullptr; ///< what `info_` and the function's language keep
    FmgrInfo info_{};
};
static_assert(std::is_trivially_destructible_v<HandlerFunction>);

/// Lives as long as the session. The first members are what it is found by.
struct KnownHandler {
    Oid oid;
    Oid definer;
    uint32 path_hash;
    uint32 kind;

    MemoryContext memory = nullptr; ///< of the texts
    const char *signature = nullptr;
    const char *definer_name = nullptr;
    const char *search_path = nullptr;   ///< of the caller
    const char *path_in_force = nullptr; ///< while it runs
    uint64 found_at = 0;       ///< the catalog_state() in which it may be called; 0: none is known
    Oid function = InvalidOid; ///< to call: the one with this oid, or its replacement
    HandlerFunction callable{};
};
static_assert(std::is_trivially_destructible_v<KnownHandler>);

/// The entry of this handler, which may be empty or out of date.
KnownHandler &known_handler(const HandlerCaller &caller, const FunctionRef &function,
                            HandlerKind kind);

} // namespace stacksaga
