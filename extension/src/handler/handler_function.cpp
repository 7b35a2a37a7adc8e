#include "src/handler/handler_function.hpp"

#include "pg/compat.hpp"
#include "src/handler/catalog_watch.hpp"

namespace stacksaga {

namespace {

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

} // namespace stacksaga
