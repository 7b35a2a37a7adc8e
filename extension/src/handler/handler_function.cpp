#include "src/handler/handler_function.hpp"

#include "src/handler/catalog_watch.hpp"

namespace stacksaga {

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

Datum HandlerFunction::call(Oid function, Datum argument, bool *isnull) {
    LOCAL_FCINFO(fcinfo, 1);
    InitFunctionCallInfoData(*fcinfo, &look_up(function), 1, InvalidOid, nullptr, nullptr);
    fcinfo->args[0].value = argument;
    fcinfo->args[0].isnull = false;
    const Datum result = FunctionCallInvoke(fcinfo);
    *isnull = fcinfo->isnull;
    return result;
}

} // namespace stacksaga
