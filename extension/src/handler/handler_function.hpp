// The function of a handler as it is called, with what is kept for its next call.
#pragma once
#include "pg/pg.hpp"
#include "src/handler/sql_function.hpp"

namespace stacksaga {

/// Lives as long as the session.
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

} // namespace stacksaga
